// Package schedules tests what each network on the way got of a session, datagram by datagram: by each schedule, over
// plain paths, by one exit, on each plane, and by rules. The captures in these networks are the only witnesses.
//
// It holds tests only. Kinds of path are tested in packages kinds and tunnels, and failing networks in package weather.
package schedules
