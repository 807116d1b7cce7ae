// Package lab builds worlds: hosts in network namespaces, routers, and links with delay, rate and loss.
//
// A [World] is a small Go value. [Up] makes it real and returns an [Instance]. There you start unmodified programs
// ([Host.Command]), change links ([Link.Reshape], [Link.Cut]) and capture devices ([Instance.Capture]).
//
//	lab.MaybeEnter() // first line of main and of TestMain
//	in, err := lab.Up(ctx, lab.ThreeWays(), lab.Options{})
//	defer in.Down()
//	out, err := in.Host("client").Command(ctx, "ping", "-c1", "192.0.2.1").CombinedOutput()
//
// Links are veth pairs, or emulated. Because netem is often absent, the lab has its own emulator: a TUN device at each
// end and a user-space queue for each direction. It records its lateness ([Instance.Status]); do not trust an
// experiment whose emulator was late.
//
// The lab changes nothing on the machine except namespaces named heddle-NAME-HOST and a directory under
// /run/heddle/lab. Addresses exist only inside the namespaces, so worlds do not collide.
//
// Do not use it for emulated links above 100 Mbit/s, or to measure absolute speed: the whole world shares one machine.
// Interleave the runs that you compare. It needs root, see [Supported].
package lab
