// Package pathkinds tests the kinds of path through the binary, in worlds, with the captures as witnesses: WireGuard tunnels,
// SOCKS5 and MASQUE proxies and OpenVPN's devices, alone and mixed in one session, with others' programs as peers.
//
// It holds tests only; peers are in package peer, worlds in package lab.
package pathkinds
