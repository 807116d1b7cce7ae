// Package wireguard is the kind of path that leaves through a WireGuard tunnel of its own, without a device and without
// privileges: wireguard-go under a network stack in this process (gVisor).
//
// The tunnel starts with the first flow, is shared by all flows of the path, and ends a while after the last one. Its own
// packets are datagrams on the path that it rides, so that they leave by that path or not at all.
//
// Of the wg-quick file it takes the keys, addresses, MTU, AllowedIPs, endpoint and keep-alive. Table, FwMark, ListenPort,
// DNS and commands are about a device, of which there is none.
//
// Do not use it for a whole machine's traffic: that is `heddle up`, or wg-quick and an if: path.
package wireguard
