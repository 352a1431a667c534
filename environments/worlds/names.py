"""Names and values: the people of a world and the pools that relations draw from.

A value is lower case unless it is a proper noun, has no article, and is part of no
other value of its pool, so an exact answer is never in doubt. Employers, restaurants,
bands, teams, titles and prizes are invented; cities and countries are real. The pools
in `NAMED` are split like people: even places for training, odd ones for the test split.
"""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Person


def _listed(text: str) -> tuple[str, ...]:
    return tuple(" ".join(entry.split()) for entry in text.split(","))


_SHE: Final = _listed("""
    Amara, Beatriz, Chiyo, Dalia, Eleni, Fatou, Giulia, Hanneke, Imani, Jacinta, Keiko, Leocadia, Mireille,
    Nadezhda, Oluchi, Priya, Quynh, Rosalind, Saoirse, Tamsin, Ulrike, Valentina, Wambui, Xiomara, Yasmin, Zofia,
    Agnieszka, Bronwyn, Candela, Daphne, Esperanza, Freya, Gudrun, Henrietta, Ingrid, Jyoti, Katarina, Lakshmi,
    Magdalena, Nomvula, Ophelia, Parisa, Ramona, Sunniva, Thandiwe, Usha, Vendela, Winifred, Yevgenia, Zainab,
    Aoife, Birgitta, Consuelo, Dorothea, Emiko, Farida, Greta, Hyejin, Isolde, Jolanta, Kalinda, Lucinda, Meiling,
    Nasrin, Odette, Paloma, Renata, Shanthi, Tomoko, Ursula, Veronika, Wilhelmina, Robin, Quinn, Avery, Emerson,
    Marlowe, Remy, Ellis, Lior, Blair, Harper, Linden, Nico
""")
_HE: Final = _listed("""
    Adebayo, Bartosz, Cormac, Dmitri, Emeka, Farhan, Gustavo, Hiroshi, Ibrahim, Jorge, Kwame, Lorenzo, Mateusz,
    Nikhil, Obinna, Pradeep, Quentin, Rasmus, Sebastian, Takeshi, Umberto, Viktor, Wojciech, Xavier, Yusuf, Zoltan,
    Anders, Baptiste, Cedric, Desmond, Eamon, Femi, Giovanni, Hamish, Idris, Jamal, Klaus, Leopold, Mahmoud,
    Norbert, Oskar, Piotr, Rajiv, Stellan, Tariq, Ulises, Vikram, Winston, Yannick, Zubair, Arjun, Bogdan, Callum,
    Dariush, Efrain, Fergus, Gethin, Haruto, Ismael, Jerzy, Kenji, Lachlan, Marek, Nnamdi, Olivier, Pavel, Reuben,
    Sanjay, Thabo, Vaclav, Wesley, Emilio, Sasha, Rowan, Morgan, Skyler, Jules, Hollis, Teagan, Sage, Finley, Kiran,
    Merritt, Oakley
""")

PEOPLE: Final[tuple[Person, ...]] = tuple(
    person
    for place in range(0, len(_SHE), 2)
    for person in (
        *(Person(name=name, he="she") for name in _SHE[place : place + 2]),
        *(Person(name=name, he="he") for name in _HE[place : place + 2]),
    )
)
"""Two women, two men and so on, so that even and odd places hold as many of each."""

POOLS: Final[dict[str, tuple[str, ...]]] = {
    "cities": _listed("""
        Lisbon, Ghent, Nairobi, Osaka, Valparaiso, Tbilisi, Edinburgh, Montreal, Hanoi, Gdansk, Dakar, Wellington,
        Bologna, Oaxaca, Tampere, Kyoto, Marseille, Tucson, Galway, Medellin, Leipzig, Accra, Brisbane, Sarajevo,
        Utrecht, Halifax, Pune, Bergen, Cusco, Antwerp, Seville, Kigali, Ljubljana, Portland, Busan, Thessaloniki,
        Cardiff, Winnipeg, Chiang Mai, Graz, Durban, Hobart, Trieste, Puebla, Turku, Sapporo, Nantes, Boulder, Limerick,
        Cordoba, Dresden, Kumasi, Adelaide, Plovdiv, Rotterdam, Calgary, Kochi, Malmo, Arequipa, Bruges, Porto,
        Windhoek, Zagreb, Savannah, Taipei, Bucharest, Aberdeen, Quebec, Lucknow, Reykjavik, Montevideo, Basel, Granada,
        Gaborone, Tallinn, Pittsburgh, Penang, Norwich, Asheville, Vilnius, Leeds, Kampala, Krakow, Duluth
    """),
    "countries": _listed("""
        Peru, Norway, Vietnam, Morocco, Iceland, Japan, Portugal, Kenya, Chile, Georgia, Ireland, Greece, Sri Lanka,
        Canada, Slovenia, Ghana, New Zealand, Colombia, Estonia, Jordan, Uruguay, Austria, Nepal, Tanzania, Croatia,
        Finland, Mexico, Bolivia, Malaysia, Denmark
    """),
    "employers": _listed("""
        Larkfield Logistics, Bluequarry, Tessaly Labs, Northwick Foods, Obrien & Vale, Calder Robotics, Sunmere Clinic,
        Pinehallow Press, Vantage Mills, Kestrel Freight, Mossgate Bank, Delphine Optics, Harrowby Insurance, Quillon
        Software, Ferndale Ceramics, Amberline Rail, Copperleaf Energy, Tidewater Analytics, Brightmoor Academy, Zephyr
        Cycles, Ironbridge Theatre, Lumenworks, Oakhurst Nurseries, Saltmarsh Brewery, Novabell Telecom, Redfern
        Pharmacy, Stonecrop Studios, Hollowell Hospital, Meridian Shipping, Wildrose Catering, Candlewick Games, Ashdown
        Vineyards, Polaris Surveying, Greywater Filters, Thornbury Council, Juniper Textiles, Eastgate Aviation,
        Fieldmouse Bakery, Halcyon Records, Marlstone Quarries, Periwinkle Daycare, Corvane Security, Rosedale Printing,
        Birchway Solar
    """),
    "jobs": _listed("""
        nurse, welder, librarian, pastry chef, tax accountant, physiotherapist, bus driver, graphic designer, beekeeper,
        paramedic, translator, carpenter, data analyst, florist, optician, history teacher, plumber, tour guide, radio
        producer, lab technician, tattoo artist, vet, electrician, proofreader, social worker, barber, surveyor,
        midwife, sound engineer, gardener, pharmacist, customs officer, game tester, train conductor, museum curator,
        sous chef, web developer, dental hygienist, locksmith, court clerk, stage manager, piano tuner, dog groomer,
        cartographer, lifeguard, warehouse supervisor, speech therapist, wedding photographer, roofer, archivist, flight
        attendant, tailor, brewer, recruiter, zookeeper, insurance broker, tram mechanic, upholsterer, estate agent,
        swimming coach, firefighter, meteorologist
    """),
    "animals": _listed("""
        dog, cat, rabbit, parrot, hamster, tortoise, goat, ferret, gecko, hen, guinea pig, pony, hedgehog, cockatiel
    """),
    "pets": _listed("""
        Biscuit, Pickles, Waffles, Mochi, Noodle, Pepper, Gizmo, Clementine, Buttons, Pistachio, Domino, Marzipan,
        Pretzel, Bandit, Figaro, Nutmeg, Turnip, Banjo, Truffle, Sprocket, Dumpling, Ziggy, Doodle, Mabel, Bramble,
        Caramel, Chutney, Admiral, Socks, Jellybean, Teaspoon, Percy, Snickers, Wombat
    """),
    "hobbies": _listed("""
        birdwatching, bouldering, knitting, woodturning, fly fishing, stargazing, salsa dancing, baking sourdough,
        geocaching, calligraphy, open-water swimming, roller skating, playing chess, embroidery, foraging, kitesurfing,
        life drawing, trail running, making pottery, beatboxing, origami, collecting stamps, brewing cider, restoring
        radios, paddleboarding, solving crosswords, fencing, topiary, ballroom dancing, soap making, drone racing,
        kayaking, learning magic tricks, taking film photos, judo, bookbinding, improv comedy, playing darts, candle
        making, sculling, juggling, wild camping, quilting, archery, skateboarding, tap dancing, growing bonsai,
        whittling, reading tarot, metal detecting, tai chi, snorkelling, playing bridge, leatherwork, hula hooping,
        astrophotography, cross-country skiing, playing petanque, glassblowing, line dancing, running marathons, writing
        haiku
    """),
    "dishes": _listed("""
        paella, pho, shakshuka, mushroom risotto, lamb tagine, bigos, gumbo, okonomiyaki, moussaka, fish pie, jollof
        rice, ramen, butter chicken, cannelloni, goulash, ceviche, bibimbap, falafel, cottage pie, pad thai, feijoada,
        gazpacho, laksa, borscht, dim sum, pozole, ratatouille, biryani, poutine, injera, fondue, khachapuri, katsu
        curry, chilli con carne, arroz caldo, spanakopita, hot and sour soup, cassoulet, dal makhani, beef rendang, jerk
        pork, fattoush, tempura, carbonara
    """),
    "drinks": _listed("""
        oat flat white, black coffee, chai latte, ginger beer, peppermint tea, dry cider, matcha, kombucha, hot
        chocolate, tonic water, elderflower cordial, cold brew, rose lassi, rooibos, espresso martini, horchata, root
        beer, lemonade
    """),
    "desserts": _listed("""
        tiramisu, key lime pie, sticky toffee pudding, baklava, pavlova, rhubarb crumble, creme brulee, carrot cake,
        panna cotta, pistachio gelato, bread and butter pudding, mille-feuille, banoffee, cheesecake, trifle, apple
        strudel
    """),
    "allergens": _listed("""
        peanut butter, shellfish, penicillin, pollen, latex, sesame, bee venom, cat hair, rhubarb, gluten, nickel,
        lactose, mango, house dust, soy, celery, ibuprofen, egg white, turmeric, walnut oil
    """),
    "books": _listed("""
        The Salt Ledger, A Quiet Inheritance, Nine Doors North, The Orchard Thief, Letters to a Lighthouse, Winter in
        Marrow Street, The Cartographer's Debt, Small Hours of Iron, Beneath the Paper Moon, The Reluctant Ferryman,
        Tomorrow Smells of Rain, A Field Guide to Regret, Hollow Crown Hotel, The Beekeeper's Alibi, Thirteen Kinds of
        Blue, House of Borrowed Clocks, The Glass Apprentice, Embers for Breakfast, Lanterns over Kesh, The Understudy's
        War, Cold Harbour Road, An Almanac of Storms, The Tin Cathedral, What the Heron Saw, Daughters of the Dyke,
        Midnight at the Archive, The Patience of Stones, Eleven Unsent Apologies, Under a Borrowed Sky, The Mapmaker's
        Widow, Saints of the Ninth Ward, Bitter Lemon Summer, The Silence Engine, Notes from a Drowned Village, Half a
        Kingdom by Train, The Clockmender, Wolves in the Vineyard, A Thousand Small Fires, The Ivory Postman, Where the
        Tramlines End, Foxglove Manor, The Accidental Diplomat
    """),
    "films": _listed("""
        Paper Tigers of Lodz, The Long Layover, Velocity Garden, Moonlit Debtors, Static on Channel Four, The
        Pickpocket's Waltz, Red Kite Rising, Eight Seconds to Dusk, The Understairs, Marigold Express, Ghost Frequency,
        Two Tickets to Nowhere, The Winter Plumber, Sandcastle Republic, Hummingbird Protocol, Dinner with the Enemy,
        Zero Gravity Wedding, The Violin Heist, Night Bus to Bari, Swordfish Avenue, Almost Astronauts, The Puppeteer's
        Son, Copper Canyon Kid, Fifteen Minutes of Fog, Dust and Diamonds, The Karaoke Duke, Pelican Harbour, Once Upon
        a Runway, The Ninth Umpire, Electric Shepherd, Broken Compass Club, Mother of Thunder, The Invisible Tenant,
        Cactus Sunday, Operation Marmalade, The Lighthouse Keeper's Bride, Tunnel Vision Blues, Seven Samovars, The
        Borrowed Piano, Crimson Tideline, Last Train to Ostrava, Kites at Dawn
    """),
    "songs": _listed("""
        Velvet Elevator, Borrow My Umbrella, Tangerine Heart, Slow Train Lullaby, Neon Orchard, Call Me Tuesday,
        Driftwood Parade, Paper Lantern Girl, Half Past Goodbye, Satellite Kitchen, Honey in the Engine, Wrong Side of
        the River, Cardboard Crown, Ten Foot Dancer, Blue Gravel Road, Seaside Static, Monsoon Radio, Cherry Cola
        Requiem, Hush Little Motorway, Sleepwalking to Berlin, Rust and Roses, Ferris Wheel Blues, Kitchen Floor Ballet,
        Silver Thermos, Postcards from July, Window Seat Waltz, The Thunder Owes Me, Bicycle Saints, Lavender Static
        Rain, Empty Pool Party, Telephone Moon, Second Hand Stars, Marble Staircase, Hummingbird Sunday, Backseat
        Astronomer, Gasoline Hymn, Wintercoat, Midnight Marmalade, Long Way to Lima, Sugar on the Asphalt, Ivy and Neon,
        Goodnight Gibraltar
    """),
    "bands": _listed("""
        Dry Canal, Pocket Thunder, Lantern Room, Paper Foxes, Cassette Weather, Ottoline, Glass Harbour, Night
        Gardeners, Velveteen Riot, Cousin Comet, Brass Umbrella, Mono Lake Choir, Tidy Wolves, Arcade Sparrow, Copper
        Saints, Low Ceiling, Juniper Ghosts, Lost Vowels, Radio Caspian, Pale Orbit, Kettle Drum Army, Moth Parliament,
        Slow Comets, Borrowers Union
    """),
    "instruments": _listed("""
        cello, ukulele, saxophone, banjolele, accordion, trumpet, harp, clarinet, marimba, oboe, mandolin, trombone,
        sitar, flute, bassoon, harmonica
    """),
    "sports": _listed("""
        badminton, water polo, handball, netball, squash, ice hockey, volleyball, table tennis, cricket, lacrosse,
        futsal, curling, basketball, ultimate frisbee, roller derby, korfball
    """),
    "places": _listed("""
        aquarium, planetarium, botanical garden, tulip farm, boating lake, railway museum, old lighthouse, flea market,
        bird sanctuary, ruined castle, sculpture park, rooftop cinema, thermal spa, waterfall trail, opera house,
        maritime archive, butterfly house, science centre, chocolate factory, fossil beach, wax museum, windmill
        village, salt mine, observatory, outdoor ice rink, corn maze, cathedral tower, crystal cave, deer park,
        funicular, folk festival, zoo, racecourse, vintage arcade
    """),
    "items": _listed("""
        cordless drill, sewing machine, espresso maker, record player, standing desk, air fryer, telescope, typewriter,
        rice cooker, electric scooter, hammock, bookcase, dehumidifier, pressure washer, tent, e-reader, dress watch,
        projector, rocking chair, food processor, camera, trampoline, leather jacket, wok, kayak paddle, mattress, piano
        stool, sofa bed, chess set, bread machine, rain barrel, ice cream maker, weighted blanket, hiking backpack,
        robot vacuum, graphics tablet
    """),
    "vehicles": _listed("""
        camper van, vintage Vespa, cargo bike, red hatchback, pickup truck, mobility scooter, station wagon, folding
        bike, three-wheeler, tandem, sidecar motorbike, minivan, convertible, rowing boat, narrowboat, secondhand Volvo,
        yellow Beetle, mountain bike, gravel bike, jeep, dinghy, hybrid Toyota
    """),
    "illnesses": _listed("""
        tonsillitis, shingles, bronchitis, chickenpox, sinusitis, food poisoning, glandular fever, tinnitus, kidney
        stones, conjunctivitis, vertigo, laryngitis, dengue fever, pneumonia, whooping cough, appendicitis, gastritis,
        gout, anaemia, sciatica
    """),
    "injuries": _listed("""
        sprained ankle, broken wrist, torn ligament, cracked rib, dislocated shoulder, fractured elbow, bruised
        tailbone, burnt hand, black eye, broken toe, pulled hamstring, concussion, chipped tooth, slipped disc, cut
        thumb, jammed finger, twisted knee, scratched cornea, stiff neck, split lip
    """),
    "courses": _listed("""
        first aid, bookkeeping, sign language, food hygiene, scuba diving, project management, creative writing, bicycle
        repair, wine tasting, web accessibility, silversmithing, public speaking, mountain leadership, interior design,
        childcare, welding, massage therapy, screen printing, beginner coding, forklift operation, garden design, music
        production
    """),
    "degrees": _listed("""
        oceanography, architecture, philosophy, nursing, computer science, linguistics, civil engineering, economics,
        fine art, theology, chemistry, film studies, criminology, psychology, veterinary medicine, anthropology,
        statistics, geology, agriculture, musicology
    """),
    "languages": _listed("""
        Catalan, Welsh, Korean, Swahili, Icelandic, Portuguese, Tamil, Hungarian, Arabic, Finnish, Turkish, Yoruba,
        Greek, Vietnamese, Dutch, Hebrew, Polish, Quechua, Danish, Hindi, Basque, Mandarin
    """),
    "colours": _listed("""
        teal, maroon, mustard yellow, lilac, burnt orange, navy, mint green, turquoise, charcoal grey, coral, khaki,
        scarlet, peach, indigo, salmon pink, emerald
    """),
    "music": _listed("""
        bluegrass, jazz, techno, flamenco, choral music, ska, grime, bossa nova, disco, drum and bass, baroque, reggae,
        western swing, afrobeat, death metal, gospel, shoegaze, klezmer
    """),
    "homes": _listed("""
        studio flat, terraced house, houseboat, basement flat, farmhouse, loft conversion, shared house, bungalow,
        gatehouse, top-floor flat, converted barn, tiny house, duplex, caravan
    """),
    "rooms": _listed("""
        pantry, bathroom, attic, garage, spare bedroom, conservatory, stairwell, cellar, balcony, living room, utility
        room, front porch
    """),
    "restaurants": _listed("""
        The Quiet Ladle, Olive & Ember, Casa Limonera, The Copper Spoon, Saffron Yard, Little Fenugreek, Nonna Pina's,
        Blue Heron Grill, Umi Corner, The Salted Pear, Tamarind Row, Bistro Marcel, Smokehouse 41, The Idle Fork,
        Lemongrass Lantern, Dunes Taverna, Bean & Barrow, Garlic & Gold, The Tin Whisk, Cardamom Club, Harbour Oyster
        Bar, Pasta Fresca Luna, The Hungry Otter, Maison Citron
    """),
    "teams": _listed("""
        Harbour Rovers, Redbridge Comets, Northfield Foxes, Eastvale Otters, Granite City Hawks, Silverlake Falcons,
        Dockside Anglers, Westmoor Badgers, Riverton Stags, Thistle Cranes, Castle Park Wolves, Mountview Bisons,
        Lakeside Pirates, Ashford Herons, Kingsway Panthers, Copperhill Rams
    """),
    "shows": _listed("""
        Harrow & Daughter, The Dawn Clinic, Paradise Allotment, Cold Wire, Baking Under Pressure, Inspector Vane, The
        Other Lodgers, Saltwater Kings, Mayor for a Month, Tidal Hearts, Quiz Furnace, The Last Junction, Deep Winter
        Patrol, Agents of Bureau Nine, Small Town Forensics, Castaway Chefs, Fifty Acres, Undercroft
    """),
    "games": _listed("""
        Harbour Barons, Meeple Mountain, Dragon Ledger, Spice Caravan, Catacomb Clash, Orbit Farmers, Tea Merchants of
        Xian, Pirate Parcel, Gnome Market, Rail Tycoon Duel, Tower of Tiles, Island Bazaar, Fjord Builders, Moonbase
        Lotto, Cipher Circus, Kingdom of Moss
    """),
    "diets": _listed("""
        vegan, pescatarian, gluten-free, dairy-free, keto, sugar-free, low-salt, low-carb, vegetarian, high-fibre,
        paleo, Mediterranean
    """),
    "commutes": _listed("""
        tram, ferry, bicycle, train, motorbike, moped, coach, metro, taxi, minibus, skateboard, car
    """),
    "causes": _listed("""
        food bank, animal shelter, community garden, charity shop, crisis helpline, hospice, soup kitchen, river
        clean-up, repair cafe, youth club, refugee centre, mobile library, lifeboat station, toy library, hedgehog
        rescue, reading scheme
    """),
    "fears": _listed("""
        flying, deep water, darkness, thunder, blood, fire, fog, thin ice, speaking in public, swimming in lakes,
        walking over bridges, riding in lifts, driving at night, electricity, being alone, throwing up
    """),
    "plants": _listed("""
        monstera, lemon tree, fiddle-leaf fig, aloe, orchid, yucca, peace lily, jade plant, rubber plant, Venus flytrap,
        cactus, spider plant, passion flower, fig tree, snake plant, hibiscus
    """),
    "tattoos": _listed("""
        swallow, compass rose, fern leaf, octopus, paper boat, koi carp, moon phases, anchor, fox, bumblebee, mountain
        skyline, sea turtle, oak branch, hot-air balloon, jellyfish, treble clef
    """),
    "gym": _listed("""
        spin class, aqua aerobics, kettlebell training, boxing training, barre, circuit training, Zumba, CrossFit,
        Pilates, Bollywood cardio, hot yoga, rowing bootcamp
    """),
    "awards": _listed("""
        Golden Spatula, Silver Quill, Founder's Medal, Rising Star Trophy, Community Champion Award, Best in Show
        Rosette, Green Thumb Cup, Apprentice of the Year, Lantern Prize, Safety Shield, Players' Player Award, Harvest
        Ribbon, Bright Ideas Bursary, Long Service Pin
    """),
    "parties": _listed("""
        housewarming, surprise party, barbecue, baby shower, hen weekend, retirement do, karaoke night, murder mystery
        evening, potluck, fancy dress party, quiz night, engagement party, farewell lunch, garden party, family reunion,
        games night
    """),
    "lost_things": _listed("""
        passport, wallet, house key, wedding ring, phone, parasol, library card, laptop charger, rucksack, hearing aid,
        bracelet, gym bag, lucky scarf, driving licence, diary, bus pass, sketchbook, raincoat
    """),
    "appliances": _listed("""
        boiler, washing machine, fridge, dishwasher, oven, computer, television, router, shower pump, tumble dryer,
        printer, doorbell, freezer, vacuum cleaner, microwave, toaster, kettle, blender
    """),
    "crafts": _listed("""
        patchwork quilt, bookshelf, birdhouse, fisherman's jumper, coffee table, dolls' house, ceramic teapot,
        stained-glass lamp, model railway, picnic bench, toy castle, tapestry, rag rug, cigar-box guitar, wedding cake,
        tree house
    """),
    "sightings": _listed("""
        kingfisher, barn owl, otter, wild boar, seal pup, red squirrel, mountain hare, grass snake, peregrine falcon,
        badger, woodpecker, stoat, wild cat, heron, pine marten, white stag
    """),
    "clubs": _listed("""
        book club, chess society, rowing club, choir, debating society, model train club, history circle, gardening
        club, film club, astronomy society, allotment association, bell-ringing guild, cycling club, knitting circle,
        amateur dramatics group, poetry circle, walking group, brass band
    """),
    "appointments": _listed("""
        optician, osteopath, dermatologist, chiropodist, allergist, cardiologist, dietitian, speech pathologist, sleep
        specialist, acupuncturist, orthodontist, knee surgeon, urologist, eye surgeon, travel nurse, counsellor
    """),
}
"""Values by pool."""

NAMED: Final[frozenset[str]] = frozenset(name for name, pool in POOLS.items() if len(pool) >= 24)
"""Pools that are large enough to be split between training and test."""
