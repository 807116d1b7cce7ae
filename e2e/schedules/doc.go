// Package schedules tests, from captures, which datagrams of a session each network saw: by each schedule, over plain
// paths, by one exit, on each backend, and by rules. Packages pathkinds and faults test kinds of path and failing
// networks. Tests only.
package schedules
