// Package demo shows what each network sees of a session: with Heddle over three networks, with WireGuard over one, and
// with no tunnel.
//
// As root it lays a world ([lab.ThreeWays]) with an unmodified wireguard-go server and captures at the access networks'
// routers. Without root it runs over loopback addresses, with the server in this process. In both, `heddle up` and curl
// are the real programs, and the report comes from the captures alone.
//
// Do not use this package to measure: it takes one run of each and no baseline for speed. That is what bench is for.
package demo
