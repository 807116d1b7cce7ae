package bind

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/config"
	"heddle/path"
	"heddle/schedule"
)

// Paths gives a command the flags that say over which ways out a session is split and how. Each flag has the name
// and the meaning of its key in heddle.toml; what p holds is the default.
func Paths(cmd *cobra.Command, p *config.Paths) {
	flags := cmd.Flags()
	flags.StringArrayVar(&p.Via, "via", p.Via, "a path, `NAME=KIND:ARG`, such as home=if:eth0; one flag a path")
	flags.StringArrayVar(&p.Path, "path", p.Path, "a path beside the schedule, `NAME=KIND:ARG`, for rules to use and tunnels to ride")
	flags.StringVar(&p.HandshakeVia, "handshake-via", p.HandshakeVia, "the `NAME` of the path that alone carries QUIC's handshake")
	flags.StringArrayVar(&p.Rules, "rule", p.Rules, "send what matches by one path, `WHEN=NAME`: \"first 10p=office\", \"first 3s=office\", \"port 53=office\"")
	flags.StringArrayVar(&p.Secret, "secret", p.Secret, "the file that holds the password or token of a path, `NAME=FILE`")
	flags.StringVar(&p.Identity, "identity", p.Identity, "the `FILE` of this device's private key, for paths by overlay nodes")
	flags.StringVar(&p.Schedule, "schedule", p.Schedule, "which path is next: "+strings.Join(schedule.Names(), ", "))
	flags.StringVar(&p.Every, "every", p.Every, "how long a path is kept: a time (100ms), packets (50p) or none")
	flags.DurationVar(&p.Settle, "settle", p.Settle, "keep the first path of a session so long at least")
	flags.DurationVar(&p.AtGaps, "at-gaps", p.AtGaps, "let a switch wait for a gap of so long in the traffic, for one unit at most")
	flags.DurationVar(&p.Reorder, "reorder", p.Reorder, "put in order what arrives by several paths, and hold it so long at most")
	flags.Float64Var(&p.Alpha, "alpha", p.Alpha, "concentration of the Dirichlet distribution that weighted draws from")
	flags.Var(seedValue{&p.Seed}, "seed", "make the draws repeatable (for experiments: whoever knows it knows the split)")
	flags.IntVar(&p.MinPaths, "min-paths", p.MinPaths, "healthy paths it takes to send at all; 0 means 2, or all where fewer are given")
	flags.BoolVar(&p.Degrade, "degrade", p.Degrade, "go on with fewer healthy paths than --min-paths")
	flags.StringVar(&p.Capture, "capture", p.Capture, "write what leaves and arrives on each path to `DIR`, one pcapng file a path")
	_ = cmd.MarkFlagDirname("capture")
	_ = cmd.MarkFlagFilename("identity")
	_ = cmd.RegisterFlagCompletionFunc("schedule", cobra.FixedCompletions(schedule.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("every", cobra.FixedCompletions(
		[]string{"100ms", "500ms", "50p", "200p", "none"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("via", CompleteVia)
	_ = cmd.RegisterFlagCompletionFunc("path", CompleteVia)
}

// seedValue is a flag that knows whether it was given.
type seedValue struct{ seed **uint64 }

func (v seedValue) Type() string { return "number" }

func (v seedValue) String() string {
	if v.seed == nil || *v.seed == nil {
		return ""
	}
	return strconv.FormatUint(**v.seed, 10)
}

func (v seedValue) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return errors.New("it is not a whole number from 0")
	}
	*v.seed = &n
	return nil
}

// CompleteVia completes NAME=KIND:ARG: the kinds there are, then this machine's interfaces or addresses.
func CompleteVia(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	const last = cobra.ShellCompDirectiveNoFileComp
	name, rest, named := strings.Cut(typed, "=")
	kind, _, kinded := strings.Cut(rest, ":")
	var offers []string
	switch {
	case !named:
		// A name is free to choose; an interface's own is a good one.
		for _, i := range Interfaces() {
			offers = append(offers, i.Name+"=if:"+i.Name)
		}
		return offers, last
	case !kinded:
		for _, k := range path.Kinds() {
			offers = append(offers, name+"="+k+":\tcarries "+path.KindCarries(k).String())
		}
		return offers, more
	case kind == "if" || kind == "ports":
		for _, i := range Interfaces() {
			offers = append(offers, name+"="+kind+":"+i.Name)
		}
	case kind == "src":
		for _, i := range Interfaces() {
			offers = append(offers, sourceOffers(name, i)...)
		}
	}
	return offers, last
}

func sourceOffers(name string, i net.Interface) []string {
	addresses, err := i.Addrs()
	if err != nil {
		return nil
	}
	var offers []string
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			offers = append(offers, name+"=src:"+n.IP.String()+"\t"+i.Name)
		}
	}
	return offers
}

// Interfaces are those that could be a way out.
func Interfaces() []net.Interface {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var out []net.Interface
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			out = append(out, i)
		}
	}
	return out
}
