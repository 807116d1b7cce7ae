// Package wireguard is the kind of path through its own WireGuard tunnel, without a device and without privileges:
// wireguard-go under a network stack in this process (gVisor). The tunnel starts with the first flow, is shared by all flows
// of the path, and stops some time after the last one. Its packets leave by the path that it rides, or not at all.
//
// It uses the keys, addresses, MTU, AllowedIPs, endpoint, keep-alive and DNS servers of the wg-quick file, and ignores
// Table, FwMark, ListenPort and commands, which concern a device.
//
// Do not use it for all traffic of a machine: use `heddle up`, or wg-quick and an if: path.
package wireguard
