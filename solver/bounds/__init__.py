"""Lower bounds of the iteration time of configurations, one file per idea; each states its proof.

| file | idea | needs |
|---|---|---|
| `screening` | work of the whole model over the best rates of as many GPUs as are used | one layer of each shape, priced |
| `work` | work of ranks, fill and drain, memory-limited round trips, head and tail of the pipeline | stage prices |
| `network_cut` | bytes over a cut: gradients cross it, or the messages of pipelines do; delays with them | a cut, stage prices |
| `connections` | the most that one connection carries, whatever its transport and path | the link graph |
| `synchronisation` | the exchange of a stage among its even share of the replicas inside a place | stage prices |
| `unequal_layers` | layers shared out by GPU type: any share of work over the types that are used | layer prices per type |
| `slower_ranks` | some replica has so many ranks on slower types (pigeonhole) | stages on every type |
| `relaxation` | the pipeline problem with every cost at its least over places and types | `pipeline.bounds` |
| `stage_partition` | dynamic programme over GPU type and whole layers of every rank (chain partition) | stages on every type |
| `least_traffic` | bytes between buildings that no placement saves | priced parameters |

`bounded` is what bounding a column of configurations yields.
"""
