// Package nftswitch leads the packets of moved connections to their tenants by nftables. It needs CAP_NET_ADMIN on Linux. Package lead says
// what a switch does.
package nftswitch

// Table is the name of the table of nftables, of the family inet. It stays when the process ends.
const Table = "heddle_gateway"
