// Package wireguard is the kind of path that leaves through a WireGuard tunnel of its own, without a device and without
// privileges: wireguard-go under a network stack in this process (gVisor).
//
// The tunnel starts with the first flow, is shared by all flows of the path, and ends a while after the last one. Its own
// packets are datagrams on the path that it rides, so that they leave by that path or not at all.
//
// It uses the keys, addresses, MTU, AllowedIPs, endpoint, keep-alive and DNS servers of the wg-quick file. Table, FwMark,
// ListenPort and commands concern a device, and there is none.
//
// Do not use it for a whole machine's traffic: that is `heddle up`, or wg-quick and an if: path.
package wireguard
