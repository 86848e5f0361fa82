"""Words and sentence templates for the documents of documents.py.  Written for this project."""

FIRST_NAMES = """Marta Tomas Ingrid Kofi Leila Anton Yuki Pablo Greta Omar Nadia Henrik Zofia Rafael
Mei Bruno Saskia Idris Carmen Viktor Amina Joris Paloma Stellan Priya Lukas Noor Casper Imani Mateo
Freya Dmitri Salma Elias Rosa Hamid Linnea Obi Teresa Arvid Chiara Malik Agnes Sven Lucia Tariq
Birgit Emeka Dalia Piotr""".split()

LAST_NAMES = """Okafor Lindqvist Moreau Tanaka Silva Novak Hassan Bergman Castellano Petrov Adeyemi
Fischer Nakamura Duarte Kowalski Haddad Jensen Romero Ivanova Mensah Keller Ferreira Sorensen Rahman
Vasquez Laine Dubois Osei Marchetti Halvorsen Bianchi Eriksen Farouk Gunther Hoshino Ibarra Jansen
Kaplan Lombardi Mbeki Nilsson Ortega Pereira Quinn Rossi Santos Thorne Ueda Varga Weiss""".split()

CITIES = """Lisbon Bergen Trieste Osaka Valencia Gdansk Tunis Malmo Porto Varna Accra Bremen Nagoya
Coimbra Krakow Beirut Aarhus Seville Odessa Kumasi Zurich Braga Uppsala Dhaka Quito Turku Lyon Lagos
Genoa Tromso Rosario Split""".split()

ROLES = """surveyor archivist welder botanist translator machinist cartographer nurse electrician
librarian geologist carpenter auditor brewer chemist dispatcher editor glazier horologist inspector
joiner keeper locksmith mason navigator optician plumber quartermaster""".split()

GOODS = """barley copper linen cork tin olives paper salt wool amber timber slate honey rope glass
cocoa pepper candles lanterns tiles soap iron silk flour rubber coal oranges tea bricks""".split()

SHIPS = """Meridian Halcyon Driftwood Northlight Corsair Tamarind Juniper Solace Wayfarer Petrel
Larkspur Beacon Cygnus Marigold Ironwood Saltmarsh Osprey Evenstar Foxglove Gannet Hyacinth Kestrel
Lodestar Merganser Nightjar Ptarmigan Quicksilver Rosemary Sandpiper Thistle Umbra Verity""".split()

PLANTS = """yarrow foxtail sedge bilberry saxifrage willowherb marram clover gentian heather bracken
sundew campion vetch thrift orchid primrose rockrose sorrel tansy""".split()

THINGS = """ledger kettle staircase bridge clock orchard ferry lantern workshop harbour wall garden
mill road tower cellar window letter map bell bench roof gate boat oven loom cart well fence
signpost""".split()

ADJECTIVES = """old narrow quiet crooked bright patient heavy pale stubborn ordinary careful damp
hollow generous faded sturdy slow distant familiar uneven warm plain rusted tall hidden cheerful
ragged spare early borrowed""".split()

PEOPLE = """the baker|the night porter|a retired teacher|the ferryman|two apprentices|\
the new clerk|an old neighbour|the choir|a passing salesman|the gardener|the miller's daughter|\
a group of students|the committee|the caretaker|a visitor from the coast|the twins|the postmaster|\
a travelling musician|the foreman|nobody in particular""".split("|")

PAST_VERBS = """repaired|measured|painted|forgot|described|admired|inspected|moved|sketched|\
cleaned|praised|inherited|rented|argued about|leaned against|wrote about|photographed|\
closed|counted|walked past""".split("|")

TIMES = """in the spring|before the war|after the long rain|on a Tuesday|late in the evening|\
at the end of the harvest|during the second winter|shortly after noon|for most of that year|\
when the market closed|a week later|on the first clear morning|between two storms|that autumn|\
once the ice had gone|in the week of the fair""".split("|")

WEATHER = """fog|drizzle|a dry wind|thin snow|heavy cloud|bright sun|a sudden frost|still air|hail|\
a warm breeze|low mist|thunder""".split("|")

REASONS = """because the key had been lost|although no one had asked|\
so that the children could see|since the rent was due|while the kettle boiled|\
before anyone could object|as the rules required|without saying why|\
in spite of the noise|for reasons that were never written down|\
just as the bells began|until the light failed""".split("|")

OPINIONS = """nobody agreed on the cause|the matter was soon settled|the talk turned to prices|\
it seemed a small thing then|the story grew with each telling|most people had other worries|\
the old habits returned|it was cheaper than expected|the answer pleased no one|\
everything took twice as long|there was little left to say|\
the plan was quietly dropped""".split("|")

# Slots in capitals are drawn from the list of that name.
SENTENCES = """The ADJECTIVES THINGS stood empty TIMES, and OPINIONS.
PEOPLE PAST_VERBS the THINGS REASONS.
There was WEATHER over CITIES TIMES, so the ADJECTIVES road stayed closed.
TIMES, PEOPLE PAST_VERBS a ADJECTIVES THINGS near CITIES.
It is said that PEOPLE once PAST_VERBS the ADJECTIVES THINGS, but OPINIONS.
A cart of GOODS went by, and behind it came PEOPLE with a ADJECTIVES THINGS.
The price of GOODS rose TIMES, while GOODS could hardly be sold.
Beyond the THINGS grew PLANTS and PLANTS, ADJECTIVES after WEATHER.
PEOPLE kept a ADJECTIVES THINGS and never PAST_VERBS it REASONS.
In CITIES the THINGS is ADJECTIVES; in CITIES it is merely ADJECTIVES.
Of the two, the ADJECTIVES THINGS lasted longer, REASONS.
With WEATHER on the way, PEOPLE PAST_VERBS the THINGS and went home.
Everyone remembers the ADJECTIVES THINGS by the THINGS, where PEOPLE waited TIMES.
Some GOODS, a little GOODS and a ADJECTIVES THINGS were all that remained.
The meeting began late REASONS, and OPINIONS.
A path lined with PLANTS led from the THINGS to the ADJECTIVES THINGS.
When WEATHER came, OPINIONS, and PEOPLE PAST_VERBS the THINGS.
Few travellers reach CITIES TIMES; those who do praise its GOODS.
PEOPLE said that the THINGS was too ADJECTIVES, yet PEOPLE PAST_VERBS it TIMES.
The letter spoke of WEATHER, of GOODS and of a ADJECTIVES THINGS, and of nothing else.
No one PAST_VERBS the THINGS again, REASONS, and OPINIONS.
How the ADJECTIVES THINGS came to CITIES is not known, though PEOPLE PAST_VERBS it TIMES.
Under the THINGS lay a ADJECTIVES box of GOODS, which PEOPLE PAST_VERBS REASONS.
TIMES the THINGS was sold for the price of some GOODS, and OPINIONS.""".split("\n")

# Schemas of records: fields in the order of the answer, and ways to tell a record in prose.
SCHEMAS = {
    "staff": {
        "what": "every person who carries a badge",
        "fields": ("name", "role", "city", "year", "badge"),
        "sentences": (
            "{name} came to the {city} office as {a_role} in {year} and carries badge {badge}.",
            "Badge {badge} belongs to {name}, {a_role} in {city} since {year}.",
            "In {year} the {city} branch hired {name} as {a_role}, and issued badge {badge}.",
            "Since {year}, {name} has worked in {city} as {a_role}; the badge reads {badge}.",
            "The register has {name}, {a_role} from {city}, entered in {year}, badge {badge}.",
        ),
    },
    "cargo": {
        "what": "every shipment that has a waybill",
        "fields": ("ship", "goods", "tons", "port", "waybill"),
        "sentences": (
            "The {ship} landed {tons} tons of {goods} at {port} under waybill {waybill}.",
            "Waybill {waybill} covers {tons} tons of {goods}, brought to {port} by the {ship}.",
            "At {port} the {ship} unloaded {goods}, {tons} tons in all, with waybill {waybill}.",
            "For {port} the {ship} carried {tons} tons of {goods}; the waybill is {waybill}.",
            "In {port} they filed waybill {waybill}: {tons} tons of {goods} from the {ship}.",
        ),
    },
    "specimen": {
        "what": "every specimen that has a sheet number",
        "fields": ("plant", "collector", "place", "height_cm", "sheet"),
        "sentences": (
            "{collector} pressed a {plant} of {height_cm} cm near {place}, kept as sheet {sheet}.",
            "Sheet {sheet} is a {plant} from {place}, {height_cm} cm tall, found by {collector}.",
            "Near {place}, {collector} found a {plant} {height_cm} cm high, now sheet {sheet}.",
            "The {plant} on sheet {sheet}, {height_cm} cm, came from {place} by {collector}.",
        ),
    },
}
