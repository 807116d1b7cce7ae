package doctor

import (
	"strings"

	"heddle/cmd/heddle/internal/checks"
	"heddle/split"
)

// Verdict and Result are of the package checks.
type (
	Verdict = checks.Verdict
	Result  = checks.Result
)

// The verdicts.
const (
	Yes     = checks.Yes
	Partly  = checks.Partly
	No      = checks.No
	Unknown = checks.Unknown
)

type Report struct {
	Kernel     string      `json:"kernel"`
	Interfaces []Interface `json:"interfaces"`
	Checks     []Result    `json:"checks"`
	Backends   []Backend   `json:"backends"` // what each way to split can do, and whether this user can run it now
}

// Backend is a way to split, and whether this user can run it now.
type Backend struct {
	split.Backend
	Here Verdict `json:"here"`
	Hint string  `json:"hint,omitempty"` // what to do where it is not yes
}

// Examine runs all checks. It takes a few seconds at most, sends to loopback only, and changes nothing.
func Examine() (Report, error) {
	interfaces, err := interfaces()
	if err != nil {
		return Report{}, err
	}
	report := Report{Kernel: readText("/proc/sys/kernel/osrelease"), Interfaces: interfaces}
	ways := waysOut(interfaces)
	for _, c := range []struct {
		name  string
		check func() Result
	}{
		{"paths", func() Result { return pathsCheck(ways) }},
		{"observers", func() Result { return observersCheck(ways) }},
		{"source-addresses", func() Result { return sourcesCheck(ways) }},
		{"bind-to-device", bindToDevice}, {"udp-gso", udpGSO}, {"udp-gro", udpGRO}, {"ipv6", ipv6},
		{"tun", tun}, {"nftables", nftablesCheck}, {"resolver", resolver}, {"network-namespaces", namespaces}, {"bpf", bpf},
		{"mptcp", mptcp}, {"clock-source", clockSource},
	} {
		r := c.check()
		r.Check = c.name
		report.Checks = append(report.Checks, r)
	}
	has, err := held()
	report.Checks = append(report.Checks, capabilities(has, err)...)
	report.Backends = backendsHere(has, report.verdict("tun"), report.verdict("bpf"))
	return report, nil
}

// verdict returns that of a check, by its name.
func (r Report) verdict(check string) Verdict {
	for _, one := range r.Checks {
		if one.Check == check {
			return one.Verdict
		}
	}
	return Unknown
}

// Results of a check. The caller sets the name.
func yes(what string) Result           { return Result{Verdict: Yes, What: what} }
func no(what, hint string) Result      { return Result{Verdict: No, What: what, Hint: hint} }
func partly(what, hint string) Result  { return Result{Verdict: Partly, What: what, Hint: hint} }
func unknown(what, hint string) Result { return Result{Verdict: Unknown, What: what, Hint: hint} }

func list(words []string) string { return strings.Join(words, ", ") }
