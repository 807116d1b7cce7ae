package doctor

import (
	"strings"

	"heddle/split"
)

// Verdict says whether the machine can.
type Verdict string

// The verdicts. Unknown is where this user may not find out.
const (
	Yes     Verdict = "yes"
	Partly  Verdict = "partly"
	No      Verdict = "no"
	Unknown Verdict = "unknown"
)

// Result is one line.
type Result struct {
	Check   string  `json:"check"` // a stable name, such as "udp-gso"
	Verdict Verdict `json:"verdict"`
	What    string  `json:"what"`           // what was found
	Hint    string  `json:"hint,omitempty"` // what to do about it where it is not yes
}

// Report is all that was found.
type Report struct {
	Kernel     string      `json:"kernel"`
	Interfaces []Interface `json:"interfaces"`
	Checks     []Result    `json:"checks"`
	// Backends are the ways to split, and what each can do on any machine.
	Backends []split.Backend `json:"backends"`
}

// Examine looks at everything. It takes less than a few seconds, sends to loopback only, and changes nothing.
func Examine() (Report, error) {
	interfaces, err := interfaces()
	if err != nil {
		return Report{}, err
	}
	report := Report{Kernel: kernelRelease(), Interfaces: interfaces, Backends: split.Backends()}
	report.Checks = append(report.Checks, pathsCheck(interfaces), observersCheck(interfaces), sourcesCheck(interfaces))
	for _, check := range []func() Result{
		capabilities, bindToDevice, udpGSO, udpGRO, ipv6, tun, nftablesCheck, resolver, namespaces, bpf, mptcp, clockSource,
	} {
		report.Checks = append(report.Checks, check())
	}
	return report, nil
}

func yes(check, what string) Result          { return Result{check, Yes, what, ""} }
func no(check, what, hint string) Result     { return Result{check, No, what, hint} }
func partly(check, what, hint string) Result { return Result{check, Partly, what, hint} }
func unknown(check, what, hint string) Result {
	return Result{check, Unknown, what, hint}
}

func list(words []string) string { return strings.Join(words, ", ") }
