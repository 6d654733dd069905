"""The appendix's rules as plainly as they can be written: quadratic, one image after the other."""

from collections import Counter


def tidy(tag):
    return " ".join(tag.split()).casefold()


def clean(records, against="seen", least_tags=5, first=5, overlap=3):
    """For each record (image, tags, user) the rule that drops it, or "", and the row it is like, or None."""
    names, compared, verdicts = set(), {}, []
    for row, (image, listed, user) in enumerate(records):
        tags = [tidy(tag) for tag in listed]
        rule, like = "", None
        if image in names:
            rule = "repeated_image"
        elif len(tags) < least_tags:
            rule = "few_tags"
        elif tags == sorted(tags):
            rule = "alphabetical"
        elif user is not None:
            mine = set(tags[:first])
            earlier = compared.setdefault(user, [])
            like = next((other for other, theirs in earlier if len(mine & theirs) > overlap), None)
            rule = "" if like is None else "similar"
            if against == "seen" or like is None:
                earlier.append((row, mine))
        names.add(image)
        verdicts.append((rule, like))
    return verdicts


def counts(records):
    return Counter(tidy(tag) for _, tags, _ in records for tag in tags)
