// Package nftswitch leads the packets of moved connections to their tenants by nftables. It needs CAP_NET_ADMIN on Linux.
//
// The machine of the gateway routes between clients and tenants. The rules rewrite the destination of a client's packets to the tenant's
// address, and the source of the tenant's packets to the gateway's. They follow the connections without help of a program: an entry ends
// some time after the last packet, and the first packet of a new connection from a port that was used before ends the one of the old
// connection, if that has ended. So established connections go on without the gateway.
package nftswitch

import "time"

// Table is the name of the table of nftables, of the family inet. It stays when the process ends.
const Table = "heddle_gateway"

// Idle is how long an entry lasts after the last packet of its connection. Keep-alive probes count.
const Idle = 10 * time.Minute

// Most bounds the connections of IPv4, and those of IPv6.
const Most = 1 << 20
