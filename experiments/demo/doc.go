// Package demo shows what each network sees of a session: with Heddle over three networks, with WireGuard, and untunnelled.
//
// As root it makes a world ([lab.ThreeWays]) with an unmodified wireguard-go server, and captures at the access
// networks' routers. Otherwise it runs over loopback addresses, with the server in this process. Both run the real
// `heddle up` and curl, and the report is made from the captures alone.
//
// Do not use it to measure: it has one run of each and no baseline for speed. Use package bench.
package demo
