// Package censor puts a censor on a router of a lab's world: a middlebox in the way of all packets that the router
// forwards, which cuts off conversations with servers on its list.
//
//	c, err := censor.Start(ctx, in.Host("home-gw"), censor.Options{Names: []string{"blocked.example"}})
//	defer c.Stop()
//	...
//	c.Status() // what it saw and dropped
//
// It reads server names where a censor can: in TLS ClientHellos over TCP, and in QUIC Initials of versions 1 and 2,
// which it decrypts (RFC 9001 section 5.2, RFC 9369) and puts together over packets and datagrams. A flow that named a
// listed server is convicted: the packet that completed the name, and all packets of the flow after it, are dropped,
// both ways, for as long as [Options] say. Flows in which it reads no name pass, as they do with censors in the field.
//
// The packets go through a TUN device, to which the router's rules send them, so no part of netfilter is needed. The
// router counts as two hops while a censor runs. Datagrams in fragments are not put together: they pass.
//
// Do not use it to filter a network: it is slow, and lets through what it cannot read.
package censor
