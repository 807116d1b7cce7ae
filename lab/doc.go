// Package lab builds worlds: hosts in network namespaces, routers, and links with delay, rate and loss.
//
// A [World] is a small Go value. [Up] makes it real and gives an [Instance], in which programs are started unmodified
// ([Host.Command]), links are changed ([Link.Reshape], [Link.Cut]), and what crosses a device is captured ([Instance.Capture]).
//
//	lab.MaybeEnter() // first line of main and of TestMain
//	in, err := lab.Up(ctx, lab.ThreeWays(), lab.Options{})
//	defer in.Down()
//	out, err := in.Host("client").Command(ctx, "ping", "-c1", "192.0.2.1").CombinedOutput()
//
// Links are plain veth pairs, or emulated: netem is often absent, so the lab has an emulator of its own, one TUN
// device at each end and a queue in user space for each direction. It records how late it was ([Instance.Status]); an
// experiment whose emulator was late is no experiment.
//
// The lab touches nothing of the machine but what it makes: namespaces named heddle-NAME-HOST, and a directory under
// /run/heddle/lab. Addresses live inside the namespaces only, so that worlds do not collide.
//
// Do not use this package for emulated links above 100 Mbit/s, or to measure absolute speed: the whole world shares
// one machine. Compare interleaved runs. It needs root, see [Supported].
package lab
