package bind

import (
	"net"
	"strings"

	"github.com/spf13/cobra"

	"heddle/path"
)

// CompleteVia completes NAME=KIND:ARG: first the kinds, then this machine's interfaces or addresses.
func CompleteVia(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	const last = cobra.ShellCompDirectiveNoFileComp
	name, rest, named := strings.Cut(typed, "=")
	kind, _, kinded := strings.Cut(rest, ":")
	var offers []string
	switch {
	case !named:
		// Any name is valid; suggest the interface's own.
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

// Interfaces returns those that could carry a path.
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
