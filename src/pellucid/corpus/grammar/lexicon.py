"""The words of the generated English, as data: nouns, names, verbs with their frames, adjectives, adverbs.

A noun is written `singular` or `singular:plural`, a verb `base` or `base:past:participle`; what is left out is regular.
"""

from __future__ import annotations


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


FEMALE_NAMES = _listed("""
    Anna Maria Sophie Clara Emma Julia Laura Nora Olivia Ruth Sarah Helen Alice Martha Lucy Grace Diana Irene
    Paula Vera Edith Hannah Joan Rosa
""")
MALE_NAMES = _listed("""
    Tom Peter Daniel Martin Paul David Oliver Simon Victor Henry Frank George Hugo Leo Adam Robert Walter Felix
    Edward Bruno Oscar Philip Ralph Stephen
""")

FEMALE_NOUNS = _listed("""
    girl woman:women queen mother sister aunt grandmother actress waitress princess widow nun
""")
MALE_NOUNS = _listed("""
    boy man:men king father brother uncle grandfather actor waiter prince widower monk
""")
PERSON_NOUNS = _listed("""
    doctor farmer teacher baker painter writer lawyer sailor soldier nurse judge student driver singer gardener
    hunter tailor dentist pilot engineer poet reporter scientist carpenter neighbour guard child:children guest
    merchant mayor librarian musician clerk cook visitor
""")
ANIMAL_NOUNS = _listed("""
    dog cat horse rabbit fox:foxes donkey goat parrot monkey bear wolf:wolves sheep:sheep goose:geese mouse:mice
    hen squirrel
""")
THING_NOUNS = _listed("""
    letter book lamp box picture key coat hat umbrella clock basket chair knife:knives bottle mirror ticket
    camera bicycle guitar ring map blanket suitcase wallet necklace carpet kettle pencil sword violin notebook
    drum bell brush candle cup ladder painting scarf:scarves toy
""")
BUILDING_NOUNS = _listed("""
    house school museum library hotel station church castle office shop theatre factory hospital restaurant
    bakery prison palace cottage bank
""")
OUTDOOR_NOUNS = _listed("river lake forest bridge hill road harbour beach field tower fountain village")
ROOM_NOUNS = _listed("kitchen garden cellar attic garage bathroom bedroom courtyard hall tent")
EVENT_NOUNS = _listed("party concert storm wedding lesson meeting dinner journey festival war")
DAYS = _listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
DAY_PARTS = _listed("morning afternoon evening")

# Adjectives by what they describe and by what they say of it.
PERSON_ADJECTIVES = {
    "positive": _listed("""
    kind brave honest clever cheerful generous friendly charming wise gentle polite brilliant
"""),
    "negative": _listed("""
    cruel lazy rude greedy selfish nasty dishonest arrogant jealous cowardly stupid vicious
"""),
    None: _listed("tall young old quiet famous short foreign busy thin blond elderly rich"),
}
ANIMAL_ADJECTIVES = {
    "positive": _listed("friendly gentle beautiful clever lovely"),
    "negative": _listed("vicious nasty ugly lazy"),
    None: _listed("small brown young old big white black hungry grey"),
}
THING_ADJECTIVES = {
    "positive": _listed("beautiful wonderful excellent perfect lovely splendid delightful elegant"),
    "negative": _listed("ugly awful terrible horrible worthless useless dreadful hideous"),
    None: _listed("""
    red blue green small heavy wooden new old round expensive yellow large ordinary light
"""),
}
PLACE_ADJECTIVES = {
    "positive": _listed("beautiful lovely pleasant"),
    "negative": _listed("ugly horrible filthy"),
    None: _listed("old small large new narrow famous quiet dark"),
}
FEELINGS = {
    "positive": _listed("happy glad proud delighted grateful hopeful"),
    "negative": _listed("sad angry miserable ashamed furious bitter"),
    None: _listed("tired busy hungry thirsty calm curious nervous sleepy"),
}

# Verbs of persons, by the objects they take.
INTRANSITIVE = _listed("""
    laugh smile wait sleep:slept:slept sing:sang:sung dance work rest shout swim:swam:swum cough sneeze
    nod:nodded:nodded yawn sigh whisper blush wave kneel:knelt:knelt stumble whistle wander shiver
""")
MOTION = _listed("arrive return walk run:ran:run stay")
WITH_PERSON = {
    "positive": _listed("love admire praise help thank comfort encourage respect rescue trust"),
    "negative": _listed("hate insult hurt:hurt:hurt betray threaten deceive mock despise attack bully"),
    None: _listed("""
    see:saw:seen visit follow call meet:met:met watch invite recognise find:found:found hear:heard:heard greet
    ask interview notice remember answer
"""),
}
WITH_THING = _listed("""
    find:found:found lose:lost:lost buy:bought:bought sell:sold:sold carry hide:hid:hidden drop:dropped:dropped
    paint clean want need keep:kept:kept borrow forget:forgot:forgotten notice touch take:took:taken describe
    examine repair bring:brought:brought draw:drew:drawn choose:chose:chosen wrap:wrapped:wrapped collect pack
    wash polish photograph
""")
TO_PERSON = _listed("""
    give:gave:given send:sent:sent show:showed:shown offer lend:lent:lent hand sell:sold:sold
    bring:brought:brought
""")
WITH_CLAUSE = _listed("""
    say:said:said think:thought:thought know:knew:known believe claim explain notice remember discover suspect
    realise admit:admitted:admitted insist understand:understood:understood
""")
WITH_INFINITIVE = _listed("want try hope decide plan:planned:planned begin:began:begun refuse promise")
LINKING = _listed("seem become:became:become look feel:felt:felt remain")

# Verbs of animals.
ANIMAL_INTRANSITIVE = _listed("""
    sleep:slept:slept wait rest run:ran:run jump tremble stretch yawn drink:drank:drunk
""")
ANIMAL_WITH_PERSON = {
    "positive": _listed("love trust"),
    "negative": _listed("attack hate bite:bit:bitten"),
    None: _listed("follow watch see:saw:seen hear:heard:heard chase find:found:found"),
}
ANIMAL_WITH_THING = _listed("find:found:found smell touch drop:dropped:dropped carry notice lick")

MANNER_ADVERBS = _listed("quietly suddenly nervously again silently calmly briefly")
OPENING_ADVERBS = _listed("later suddenly meanwhile finally soon afterwards eventually")
FREQUENCY_ADVERBS = _listed("often always sometimes usually rarely")
DEGREE_ADVERBS = _listed("very quite rather really extremely")
NUMBERS = _listed("two three four five six seven eight nine ten twelve")
PLURAL_DETERMINERS = _listed("the some several many these those")
INDEFINITE_PLURALS = _listed("some several many")
SUBORDINATORS = {
    "past": _listed("because when while although after before"),
    "present": _listed("because when while although"),
    "future": _listed("because when after before if"),
}
"""Words that open an adverbial clause, by the tense of the main clause."""

ONLY_TO_PERSONS = frozenset(
    _listed("""
    praise thank encourage respect insult betray deceive mock despise bully visit call invite greet ask
    interview answer meet:met:met recognise
""")
)
"""Verbs that do not take animals as objects."""
OF_OTHERS = frozenset(
    _listed("""
    find buy want need borrow notice take describe examine draw choose collect photograph
""")
)
"""Verbs whose object is hardly the subject's own."""
WILLED = _listed("""
    buy sell hide paint clean borrow repair draw choose pack wash take carry examine photograph
""")
"""What somebody can want, plan or refuse to do with a thing."""
WITHOUT_DEGREE = frozenset(
    _listed("""
    delighted furious brilliant excellent perfect splendid wonderful awful terrible horrible dreadful hideous
    wooden worthless useless red blue green yellow white black brown grey blond ordinary delightful foreign
""")
)
"""Adjectives that are not graded."""
