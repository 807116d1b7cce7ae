package doctor

import (
	"os"
	"os/exec"
	"strings"
)

// resolver says how `heddle up` would set the DNS servers of a tunnel, in the order in which it tries.
func resolver() Result {
	const check = "resolver"
	if file, err := exec.LookPath("resolvconf"); err == nil {
		return yes(check, "DNS of a tunnel is set with "+file)
	}
	if _, err := os.Stat("/run/systemd/resolve"); err == nil {
		if file, err := exec.LookPath("resolvectl"); err == nil {
			return yes(check, "DNS of a tunnel is set with "+file)
		}
	}
	return partly(check, "no resolver manager: DNS of a tunnel is set in /etc/resolv.conf itself, and put back by `heddle down`",
		"apt install openresolv or systemd-resolved, so that other programs that set DNS do not undo it")
}

// The clocks that programs read without a call into the kernel (vdso(7)).
var fastClocks = map[string]bool{"tsc": true, "kvm-clock": true, "arch_sys_counter": true,
	"hyperv_clocksource_tsc_page": true, "riscv_clocksource": true}

func clockSource() Result {
	const check = "clock-source"
	text, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return unknown(check, "the kernel does not tell its clock source", "")
	}
	if name := trim(text); !fastClocks[name] {
		return partly(check, name+": each look at the clock is a call into the kernel",
			"emulated links may run late, which `heddle lab` reports; another machine is better for measurements")
	}
	return yes(check, trim(text))
}

func trim(text []byte) string { return strings.TrimSpace(string(text)) }
