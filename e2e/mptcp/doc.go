// Package mptcp tests, in a world, what `heddle stream --backend mptcp` and `heddle node run --mode nat` are for: a client with
// one uplink, three nodes on networks of their own whose kernels pass its subflows on, and a server.
//
// It holds tests only.
package mptcp
