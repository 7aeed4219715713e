"""Lower bounds of the iteration time of configurations, one file per idea; the longer proofs are in docs/bounds.md.

`screening`: work of the whole model over the best rates of as many GPUs as are used. Needs one layer of each shape.
`work`: work of ranks, fill and drain, seconds of memory, head and tail of a pipeline; the first two also
  alone, for all ways of sharding a shape at once. Needs stage prices.
`even_pipelines`: ways of micro-batches through every rank, round trips and forwards in memory, exchanges of a rank one
  after another, in columns. Needs stage prices.
`even_memory`: what the ranks of an even pipeline hold, and how many of them have room. Needs stages on every type.
`network_cut`: bytes and delays over a cut, of gradients or else of messages. Needs a cut and stage prices.
`cuts`: groups of pools with something between them. Needs the link graph.
`crossing_messages`: what a message between groups takes, and how long it takes the slowest queue. Needs a cut.
`message_queues`: messages of a replica one after another, and the exchanges that wait for the last one. Needs a
  pipeline.
`ring_connections`: exchanges of ranks of which little lies in one of two groups. Needs room and rates.
`leaving_messages`: messages that leave the groups of a cut, by how many groups have whole ranks. Needs room and rates.
`crossing_ways`: the way of a micro-batch before and behind the messages of all replicas between two groups, for layers
  shared out by GPU type. Needs `layer_limits`.
`gradient_exchange`: bytes that exchanges send out of a place, of the smallest stage and of all, and the least time in
  which links and the cards of each rank carry them. Needs stage prices.
`kind_costs`: what so many layers in a row take at least on a type. Needs layer prices.
`rank_costs`: what a rank with so many layers costs at least on a type. Needs `kind_costs`.
`chunk_layers`: how many layers the chunks of a rank have. Needs the rule that shares them out.
`rank_needs`: what it takes at least in each line of `stage_partition`. Needs `rank_costs`.
`layer_windows`: dense layers that lie beside so many MoE layers, or the other way. Needs the architecture.
`lightest`: the least work on a rank or a stage of even pipelines, in columns. Needs stage prices.
`connections`: the most that one connection carries, and the least that a message waits. Needs the link graph.
`least_hops`: messages that every pass pays, from rank to rank and between groups of GPUs. Needs the link graph.
`release_times`: exchanges of a pipeline that wait for their own gradients, on cards and on links. Needs
  `pipeline.bounds`.
`crossing_pipelines`: even pipelines with the messages of every way to lie over a cut, or with one rank that exchanges
  over it. Needs `network_cut`.
`crossing_groups`: pipelines with the messages of every way to lie over groups, out of every set of these. Needs
  `crossing_pipelines`.
`ways_over_groups`: where ranks that are whole in groups cross, and in which groups they are. Needs room by type.
`spanning_ranks`: ranks that exchange between groups, alone or with another one. Needs a cut.
`visited_groups`: messages out of every set of groups, whatever the order of these. Needs a cut of few groups.
`synchronisation`: exchange among the even share of replicas inside a place, of a stage, and of all chunks of a rank
  one after another. Needs stage prices.
`spread_exchange`: exchange of a stage over any number of places, inside them and between. Needs `network_cut`.
`unequal_layers`: layers shared out by GPU type, any share of them, and what distance costs within the time of a bound.
  Needs layer prices of every type and `network_cut`.
`layer_limits`: most layers of a rank of each type in a time, and the time for all of them. Needs layer prices.
`layer_exchanges`: up to the end of its exchanges, the time of a rank by its layers, for `layer_limits`. Needs layer
  prices.
`type_ranks`: what a layer costs on each type, and how many ranks each holds, in columns.
`slower_ranks`: some replica has so many ranks on slower types (pigeonhole). Needs stages on every type.
`mixed_pipelines`: pipelines with every choice of the ranks on slower types, best first. Needs `slower_ranks`.
`relaxation`: the pipeline problem, every cost at its least over places, types and alike rows. Needs `pipeline.bounds`.
`stage_partition`: dynamic programme over GPU type and whole layers of every rank. Needs stages on every type.
`least_traffic`: bytes between buildings that no placement saves. Needs priced parameters.
`least_cost`: what GPUs of several prices cost for the work of the model. Needs layer prices of every type.
`bounded`: what bounding a column of configurations yields.
"""
