package doctor

import (
	"os"
	"os/exec"
	"strings"
)

// resolver reports how `heddle up` would set a tunnel's DNS servers. It tries in the same order.
func resolver() Result {
	if file, err := exec.LookPath("resolvconf"); err == nil {
		return yes("DNS of a tunnel is set with " + file)
	}
	if _, err := os.Stat("/run/systemd/resolve"); err == nil {
		if file, err := exec.LookPath("resolvectl"); err == nil {
			return yes("DNS of a tunnel is set with " + file)
		}
	}
	return partly("no resolver manager: DNS of a tunnel is set in /etc/resolv.conf itself, and put back by `heddle down`",
		"apt install openresolv or systemd-resolved, so that other programs that set DNS do not undo it")
}

// Clocks that programs read without a system call (vdso(7)).
var fastClocks = map[string]bool{"tsc": true, "kvm-clock": true, "arch_sys_counter": true,
	"hyperv_clocksource_tsc_page": true, "riscv_clocksource": true}

func clockSource() Result {
	name := readText("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	switch {
	case name == "":
		return unknown("the kernel does not tell its clock source", "")
	case !fastClocks[name]:
		return partly(name+": each look at the clock is a call into the kernel",
			"emulated links may run late, which `heddle lab` reports; another machine is better for measurements")
	}
	return yes(name)
}

// readText returns the text of a kernel file, or "" if it is unreadable.
func readText(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
