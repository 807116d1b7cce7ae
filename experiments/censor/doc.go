// Package censor runs a censor on a router of a lab world: a middlebox that all forwarded packets cross, and that
// blocks flows to listed servers.
//
//	c, err := censor.Start(ctx, in.Host("home-gw"), censor.Options{Names: []string{"blocked.example"}})
//	defer c.Stop()
//	...
//	c.Status() // what it saw and dropped
//
// It reads server names in TLS ClientHellos over TCP, and in QUIC Initials of versions 1 and 2, which it decrypts (RFC
// 9001 section 5.2, RFC 9369) and reassembles over packets and datagrams. When a flow has named a listed server, the
// packet that completes the name and all later packets of the flow, in both directions, are dropped for the time that
// [Options] sets. Flows without a readable name pass, as with real censors.
//
// The router's rules send packets through a TUN device, so no part of netfilter is needed. The router counts as two
// hops while a censor runs. Fragmented datagrams are not reassembled: they pass.
//
// Do not use it to filter a network: it is slow, and lets through what it cannot read.
package censor
