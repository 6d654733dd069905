"""Which phrases are the same, for an average precision of each phrase."""

from __future__ import annotations

import re

__all__ = ["phrase_class"]

WORD = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}-][^\W_]+)*")

DROPPED = frozenset(
    """
    a an the this that these those some any no every each another either neither both all one and or
    i me my you your he him his she her it its we us our they them their who whom whose which what himself herself
    itself themselves is are was were be been being am has have had do does did can could will would there not
    """.split()
)


def phrase_class(text: str) -> str:
    """What a phrase is called as a class: its words in small letters, without those that name nothing.

    Flickr30k Entities' own evaluation keeps nouns, adjectives, prepositions and numbers above one, which a tagger told
    apart; phrases without any are one class together. Here, as no tagger is at hand, articles and other determiners,
    pronouns, conjunctions and auxiliary verbs are dropped, and verbs and adverbs stay. Nothing is made singular.

    Example:
        >>> [phrase_class(text) for text in ("A man", "the two young Men", "his hat on one side", "It")]
        ['man', 'two young men', 'hat on side', '']
    """
    return " ".join(word for word in WORD.findall(text.lower()) if word not in DROPPED)
