package pseudonym

import (
	"context"
	"fmt"
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
	{"net/ipv4/tcp_rmem", "131072", 1}, // the first window follows from it
	{"net/ipv4/tcp_syncookies", "1", 0},
}

// checkKernel compares the machine's settings with those that Linux begins with, as all machines of a cloud can have the same ones only so.
func checkKernel(get func(file string) (string, error)) checks.Result {
	var differ, commands []string
	known := 0
	for _, s := range kernelSettings {
		text, err := get("/proc/sys/" + s.file)
		fields := strings.Fields(text)
		if err != nil || len(fields) <= s.place { // a kernel without IPv6
			continue
		}
		known++
		if fields[s.place] == s.want {
			continue
		}
		name := sysctl.Name("/proc/sys/" + s.file)
		differ = append(differ, fmt.Sprintf("%s is %s", name, text))
		fields[s.place] = s.want
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
	return append(all, kernel)
}
