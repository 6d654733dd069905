"""The singular of an English noun by rules and exceptions, and the dictionary form of a word by simplemma.

The rules are for tags, where a wrong singular is worse than none: a word that is only sometimes a plural stays, and so
does every word with other letters than a to z.
"""

from __future__ import annotations

from functools import lru_cache

from excite.errors import ExciteError

LEAST = 3  # letters of a singular: "gas" and "bus" are no plurals

IRREGULAR = dict(
    pair.split(":")
    for pair in """
    children:child grandchildren:grandchild schoolchildren:schoolchild feet:foot teeth:tooth geese:goose mice:mouse
    lice:louse cacti:cactus fungi:fungus octopi:octopus hippopotami:hippopotamus alumni:alumnus
    leaves:leaf loaves:loaf calves:calf halves:half scarves:scarf thieves:thief elves:elf hooves:hoof wharves:wharf
    dwarves:dwarf sheaves:sheaf lives:life selves:self
    shoes:shoe horseshoes:horseshoe snowshoes:snowshoe toes:toe tiptoes:tiptoe foes:foe hoes:hoe canoes:canoe oboes:oboe
    woes:woe floes:floe does:doe aloes:aloe mistletoes:mistletoe
    ties:tie pies:pie lies:lie dies:die magpies:magpie neckties:necktie bowties:bowtie movies:movie cookies:cookie
    zombies:zombie brownies:brownie smoothies:smoothie selfies:selfie calories:calorie hoodies:hoodie rookies:rookie
    prairies:prairie genies:genie pixies:pixie veggies:veggie hippies:hippie collies:collie foodies:foodie
    goalies:goalie groupies:groupie newbies:newbie budgies:budgie menageries:menagerie rotisseries:rotisserie
    patisseries:patisserie brasseries:brasserie birdies:birdie onesies:onesie doggies:doggie
    uses:use fuses:fuse muses:muse excuses:excuse recluses:recluse ruses:ruse
    gases:gas lenses:lens irises:iris canvases:canvas atlases:atlas biases:bias trellises:trellis pelvises:pelvis
    thermoses:thermos rhinoceroses:rhinoceros christmases:christmas
    analyses:analysis crises:crisis oases:oasis theses:thesis diagnoses:diagnosis hypotheses:hypothesis
    skis:ski taxis:taxi bikinis:bikini kiwis:kiwi safaris:safari zucchinis:zucchini alibis:alibi
    menus:menu emus:emu gnus:gnu gurus:guru tutus:tutu haikus:haiku
    axes:axe pickaxes:pickaxe quizzes:quiz phenomena:phenomenon
    aches:ache headaches:headache toothaches:toothache backaches:backache stomachaches:stomachache caches:cache
    niches:niche avalanches:avalanche quiches:quiche cliches:cliche brioches:brioche mustaches:mustache
    moustaches:moustache
    """.split()
)

SAME = frozenset(
    """
    series species news gas lens canvas atlas bias christmas chaos cosmos thermos rhinoceros asbestos pampas pancreas
    rabies scabies means alas overseas always perhaps besides sometimes towards afterwards backwards forwards upwards
    downwards upstairs downstairs outdoors indoors headquarters crossroads barracks gallows innings clothes
    jeans pants shorts trousers scissors pliers tongs tweezers pajamas pyjamas binoculars tights leggings overalls
    sunglasses eyeglasses knickers suspenders thanks
    mathematics physics politics economics athletics gymnastics aerobics acrobatics electronics ceramics olympics
    paralympics graphics optics robotics genetics ethics logistics classics cosmetics statistics
    billiards cards darts checkers dominoes mumps measles herpes diabetes
    texas kansas arkansas dallas vegas las los angeles honduras bahamas maldives seychelles netherlands philippines
    wales naples athens brussels cannes alps andes himalayas pyrenees mars hercules james charles thomas lucas
    omen semen specimen abdomen acumen regimen ramen yemen amen cyclamen stamen hymen bitumen lumen bremen carmen
    catechumen
    """.split()
)

ENDINGS = (  # of plurals, and their singular; the first match counts
    ("men", "man"),
    ("shelves", "shelf"),
    ("wolves", "wolf"),
    ("knives", "knife"),
    ("wives", "wife"),
    ("ies", "y"),
    ("oes", "o"),
    ("sses", "ss"),
    ("shes", "sh"),
    ("ches", "ch"),
    ("xes", "x"),
    ("tzes", "tz"),
    ("zzes", "zz"),
    ("auses", "ause"),
    ("ouses", "ouse"),
    ("uses", "us"),
    ("s", ""),
)
NO_PLURAL = ("ss", "us", "is")  # glass, bus, tennis
LAST_LETTERS = frozenset("sn") | {plural[-1] for plural in IRREGULAR}  # of plurals
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def singular(tag: str) -> str:
    """A tag in lower case, its last word singular if it is an English plural; idempotent.

    Example:
        >>> [singular(tag) for tag in ("women", "old cities", "t-shirts", "leaves", "bus", "tennis", "dog's", "ads")]
        ['woman', 'old city', 't-shirt', 'leaf', 'bus', 'tennis', "dog's", 'ads']
    """
    if tag[-1:] not in LAST_LETTERS:
        return tag
    before = tag.rstrip(LETTERS)  # linear in time, unlike a pattern
    word = tag[len(before) :]
    if not word or before.endswith(("'", "\N{RIGHT SINGLE QUOTATION MARK}")):
        return tag
    while (one := _singular(word)) != word:
        word = one
    return before + word


def _singular(word: str) -> str:
    if word in SAME:
        return word
    known = IRREGULAR.get(word)
    if known is not None:
        return known
    if word.endswith(NO_PLURAL) or not word.endswith(("s", "men")):
        return word
    ending, instead = next(pair for pair in ENDINGS if word.endswith(pair[0]))
    folded = word.removesuffix(ending) + instead
    return folded if len(folded) >= LEAST else word


@lru_cache(2**14)
def forms(word: str) -> tuple[str, ...]:
    """The word itself, then its dictionary forms: as a noun, then as a verb or an adjective.

    Nouns come first, because most words for visible things are nouns; simplemma knows "leaves" as a form of "leave"
    only. Of several words, in lower case and separated by single blanks, the last is inflected.

    Raises:
        ExciteError: simplemma is not installed.

    Example:
        >>> [forms(word) for word in ("sits", "older", "traffic lights", "bus")]
        [('sits', 'sit'), ('older', 'old'), ('traffic lights', 'traffic light'), ('bus',)]
    """
    before, blank, last = word.rpartition(" ")
    lemma = before + blank + _lemma(last) if last else word
    return tuple(dict.fromkeys((*noun_forms(word), lemma)))


def noun_forms(word: str) -> tuple[str, ...]:
    """The word itself, then its singular if it may be a plural, also of plurals like "jeans"; it need not be a word.

    Example:
        >>> [noun_forms(word) for word in ("women", "jeans", "tvs", "bus", "stop signs", "sitting")]
        [('women', 'woman'), ('jeans', 'jean'), ('tvs', 'tv'), ('bus',), ('stop signs', 'stop sign'), ('sitting',)]
    """
    one = singular(word)
    if one == word and word.endswith("s") and not word.endswith(NO_PLURAL):
        one = word[:-1]
    return tuple(dict.fromkeys((word, one)))


def _lemma(word: str) -> str:
    try:
        import simplemma
    except ImportError:
        raise ExciteError("phrases are read with simplemma: pip install 'excite[ground]'") from None
    return simplemma.lemmatize(word, lang="en").lower()
