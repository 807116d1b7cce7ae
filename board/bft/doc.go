// Package bft replicates a tuple space over 3f+1 machines, of which f may be Byzantine, by CometBFT (Buchman, Kwon,
// Milosevic, "The latest gossip on BFT consensus", 2018).
//
// CometBFT orders the operations, and each replica applies them to its own heddle/board/space; see [Run]. Clients accept an
// answer that f+1 replicas give. All replicas can read all tuples. If one machine is trusted, use `heddle board run`, which
// answers a hundred times sooner.
package bft
