// Package bft replicates a tuple space over 3f+1 machines of which f may lie, by CometBFT (Buchman, Kwon, Milosevic, "The
// latest gossip on BFT consensus", 2018): the board that answers rightly though some of those who run it do not.
//
// CometBFT puts operations in an order on which the replicas agree, and each replica applies them to its own
// heddle/board/space; see [Run]. Clients speak to several replicas as they speak to a single board, and believe what f+1
// of them say alike. All replicas read all tuples: this protects against wrong answers, not against curious ones. Do not
// use it where one machine is trusted anyway; `heddle board run` answers a hundred times sooner.
package bft
