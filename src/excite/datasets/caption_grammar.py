"""Words of caption English by what they do in a sentence, as far as `excite.datasets.noun_phrases` has to know.

Gathered by hand from what stands beside the names of things in captions of COCO's training pictures.
"""

from __future__ import annotations

__all__ = [
    "BARE_VERBS",
    "COLOURS",
    "DETERMINERS",
    "FOLLOWERS",
    "GROUP_WORDS",
    "LIKENESSES",
    "MISLEADING",
    "NOUNS_LIKE_VERBS",
    "QUALITIES",
]

DETERMINERS = frozenset(
    """
    a an the this that these those his her its their my our your some any no every each another other both all several
    many few various multiple numerous different assorted one two three four five six seven eight nine ten eleven twelve
    dozen
    """.split()
)

PREPOSITIONS = frozenset(
    """
    about above across after against ahead along alongside amid among amongst around as aside at atop away before behind
    below beneath beside besides between beyond by down during for from in inside into like near nearby next of off on
    onto opposite out outside outdoors over overhead past through throughout to together toward towards under underneath
    until up upon via with within without
    """.split()
)

OTHER_FUNCTION_WORDS = frozenset(
    """
    and or but while where when who whom whose which what that if then than because so yet nor how is are was were be
    been being am has have had do does did can could may might must shall should will would he she it they them him we i
    you there here not also just still only even too it's that's he's she's who's there's isn't aren't himself herself
    itself themselves
    """.split()
)

VERBS = frozenset(
    """
    sits stands holds looks walks lays lies rides jumps flies flys plays eats takes watches drives smiles prepares pulls
    moves passes rests swings poses hits throws uses hangs makes gets wears goes puts leans carries catches runs sleeps
    reaches shows performs travels works follows talks feeds grazes tries cuts waits adjusts helps grabs points yawns
    hides covers leads checks stares climbs peers sneaks chases brushes appears contains pushes crosses speeds hugs naps
    lounges serves pets reads licks drinks cooks kneels stretches approaches attempts surfs skates swims races lands
    floats pours slides tosses kicks sails dives comes enjoys touches bends faces kisses sniffs bites chews blows rolls
    glides perches relaxes teaches laughs cleans paddles dips dries wades wanders stops turns begins starts keeps gives
    sells sings dances fixes repairs opens closes tends seems features includes displays overlooks rounds spins guides
    sat stood held made seen built caught shown taken given hung lit laid worn kept ridden driven thrown hid full ready
    upside asleep alone afloat
    """.split()
)
"""Verbs, and adjectives that follow what they describe: what may come after the last word of a noun phrase."""

BARE_VERBS = frozenset(
    """
    sit stand hold look walk lay lie ride jump fly play eat take watch drive smile prepare pull move pass rest pose hit
    throw use hang make get wear go put lean carry catch run sleep reach show perform travel work follow talk feed graze
    try cut wait gather share wade swim relax enjoy compete cross roam wander race line mill fill surround participate
    perch float face crowd come huddle drink cook kneel stretch approach attempt surf skate snuggle laugh kiss cuddle
    """.split()
)
"""Verbs of plurals. After a singular, many of them are nouns: "a cake stand", "a ski pass"."""

FOLLOWERS = PREPOSITIONS | OTHER_FUNCTION_WORDS | DETERMINERS | VERBS
"""All that shows that a noun phrase is over."""

NOUNS_LIKE_VERBS = frozenset(
    """
    building ceiling painting clothing parking wedding railing awning setting drawing frosting icing dressing topping
    bedding ring string king wing swing sling spring thing morning evening housing boarding padding lighting flooring
    siding outing grooming bed shed sled red seed weed feed breed shaped themed sized flavored coloured colored printed
    eyed powered headed legged striped hundred
    """.split()
)
"""Words in -ing and -ed that are nouns, or part of a description: "a bear shaped cake"."""

COLOURS = frozenset(
    """
    black white red green blue yellow orange brown gray grey pink purple tan beige gold golden silver dark light
    """.split()
)

QUALITIES = COLOURS | frozenset(
    """
    big small large little tiny huge tall short long old young new fat thin giant cute beautiful pretty nice fluffy
    furry wooden metal empty wet dirty clean bright colorful colourful modern vintage antique fancy
    round square plain male female adult baby electric
    """.split()
)

GROUP_WORDS = frozenset(
    """
    bunch bunches group groups couple pair pairs herd herds flock flocks crowd row rows line lines lot lots number pile
    piles stack stacks team pack fleet set variety assortment collection family dozens hundreds swarm cluster array gang
    """.split()
)
"""Of something: the whole is what it is of. A bowl of oranges is a bowl, but a bunch of bananas is bananas."""

LIKENESSES = frozenset(
    """
    toy toys fake cartoon inflatable lego ceramic statue statues sculpture sculptures painting paintings drawing
    drawings poster posters figurine figurines mural costume mannequin
    """.split()
)
"""What only looks like the thing that it is named after."""

MISLEADING = frozenset(
    " ".join(pair.split())
    for pair in """
    toilet bowl, toilet seat, toilette seat, train car, cable car, trolley car, street car, subway car, rail car,
    box car, jet ski, pit bull, microwave oven, toaster oven, flower bed, truck bed, river bed, lake bed, love seat,
    corn dog, chili dog, chilli dog, prairie dog, cd player, dvd player, record player, mp3 player, music player,
    screw driver, bike seat, bicycle seat, motorcycle seat, car seat, front seat, back seat, window seat, rocking horse,
    saw horse, sea horse, rubber duck, shipping container, trash container, trash liner, ultimate frisbee
    """.split(",")
)
"""Two words whose last one is not what it says, or not of its category."""
