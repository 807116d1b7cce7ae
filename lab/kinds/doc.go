// Package kinds tests kinds of path through the binary, in worlds, with the captures as witnesses.
//
// It holds tests only; peers are in package peer, worlds in package lab. Tunnels that others' programs serve are tested
// in package tunnels.
package kinds
