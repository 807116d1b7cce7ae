// Package tunnels tests paths through what others' programs serve, in worlds, with the captures as witnesses: WireGuard
// tunnels, SOCKS5 proxies and OpenVPN's devices, mixed in one session.
//
// It holds tests only; peers are in package peer, worlds in package lab.
package tunnels
