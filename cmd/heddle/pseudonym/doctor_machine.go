package pseudonym

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"heddle/cmd/heddle/internal/checks"
	"heddle/config"
	"heddle/internal/errhint"
	"heddle/internal/sysctl"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/gateway"
)

// kernelSettings are those by which an observer may tell the machines of two sites apart, or the gateway's from a site's, with the values that Linux begins
// with. If a setting is a list, only the value at place is compared.
var kernelSettings = []struct {
	file, want string
	place      int
}{
	{"net/ipv4/tcp_timestamps", "1", 0},
	{"net/ipv4/tcp_sack", "1", 0},
	{"net/ipv4/tcp_window_scaling", "1", 0},
	{"net/ipv4/tcp_ecn", "2", 0},
	{"net/ipv4/ip_default_ttl", "64", 0},
	{"net/ipv6/conf/all/hop_limit", "64", 0},
	{"net/ipv4/tcp_congestion_control", "cubic", 0},
	{"net/ipv4/tcp_rmem", "131072 6291456", 1}, // the first window follows from it, and the window scale
	{"net/ipv4/ip_no_pmtu_disc", "0", 0},
	{"net/ipv4/tcp_mtu_probing", "0", 0},
	{"net/ipv4/tcp_slow_start_after_idle", "1", 0},
	{"net/ipv6/auto_flowlabels", "1", 0},
	{"net/ipv4/tcp_syncookies", "1", 0},
}

// checkKernel compares the machine's settings with those that Linux begins with, as all machines of a cloud can have the same ones only so.
func checkKernel(get func(file string) (string, error)) checks.Result {
	var differ, commands []string
	known := 0
	for _, s := range kernelSettings {
		text, err := get("/proc/sys/" + s.file)
		fields, want := strings.Fields(text), strings.Fields(s.want)
		if err != nil || len(fields) < s.place+len(want) { // a kernel without IPv6
			continue
		}
		known++
		if slices.Equal(fields[s.place:s.place+len(want)], want) {
			continue
		}
		name := sysctl.Name("/proc/sys/" + s.file)
		differ = append(differ, fmt.Sprintf("%s is %s", name, text))
		copy(fields[s.place:], want)
		commands = append(commands, fmt.Sprintf("sysctl -w %s='%s'", name, strings.Join(fields, " ")))
	}
	switch {
	case known == 0:
		return checks.Result{Verdict: checks.Unknown, What: "the kernel's settings cannot be read", Hint: "run it on Linux"}
	case len(differ) > 0:
		return checks.Result{Verdict: checks.Partly, What: strings.Join(differ, ", ") + ": an observer may tell this machine from others by that",
			Hint: strings.Join(commands, "; ") + "; or have the same on the machines of all gateways and sites"}
	}
	return checks.Result{Verdict: checks.Yes, What: "sends as Linux does without other settings"}
}

// wayToClients is a route by which packets leave to anywhere.
type wayToClients struct {
	device string
	mtu    int    // of the device
	more   string // what the route sets, as ip(8) writes it, or ""
}

// usualMTU is that of Ethernet.
const usualMTU = 1500

// checkRoutes says by what an observer may tell the machine that is set for its routes: a restored connection takes it from there.
func checkRoutes(ways []wayToClients, err error) checks.Result {
	var differ, hints []string
	for _, w := range ways {
		if w.mtu != usualMTU {
			differ = append(differ, fmt.Sprintf("%s has an MTU of %d", w.device, w.mtu))
			hints = append(hints, fmt.Sprintf("ip link set %s mtu %d", w.device, usualMTU))
		}
		if w.more != "" {
			differ = append(differ, fmt.Sprintf("the default route by %s has %s", w.device, w.more))
			hints = append(hints, "ip route change default without "+w.more)
		}
	}
	switch {
	case err != nil || len(ways) == 0:
		return checks.Result{Verdict: checks.Unknown, What: "the routes to clients cannot be read", Hint: "run it on Linux, on a machine with a default route"}
	case len(differ) > 0:
		return checks.Result{Verdict: checks.Partly, What: strings.Join(differ, ", ") + ": an observer may tell this machine from others by that",
			Hint: strings.Join(hints, "; ") + "; or have the same on the machines of all sites"}
	}
	return checks.Result{Verdict: checks.Yes, What: "lead to clients as those of other machines do"}
}

// examineAgent looks at the machine of an agent.
func examineAgent(ctx context.Context, a config.PseudonymAgent) (all []checks.Result) {
	add := func(name string, err error, what string) {
		r := checks.Result{Check: name, Verdict: checks.Yes, What: what}
		if err != nil {
			r.Verdict, r.What, r.Hint = checks.No, err.Error(), errhint.Of(err)
		}
		all = append(all, r)
	}
	_, err := loadTenantKey(a.Identity, false)
	add("key", err, "the site's key is here")
	add("repair", tcprepair.Allowed(), "this process may take over connections")
	to := a.Server()
	if to == "" {
		to = a.To
	}
	if err = checkListens(ctx, to); err != nil {
		err = &errhint.Error{What: a.To, Why: err.Error(), Hint: "start what listens there; the agent refuses connections meanwhile, which stay at the gateway"}
	}
	add("to", err, "something listens at "+to)
	direct, err := a.DirectAddresses()
	if err != nil {
		add("direct", err, "")
	}
	for _, at := range direct {
		add("direct "+at.String(), gateway.CheckDirect(at), "this machine takes connections of that address, and does not say that it has it")
	}
	kernel := checkKernel(sysctl.Get)
	kernel.Check = "kernel"
	routes := checkRoutes(wayOut())
	routes.Check = "routes"
	return append(all, kernel, routes)
}
