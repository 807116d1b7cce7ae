package doctor

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/split"
)

// wanted are the capabilities that some of Heddle needs, as in capabilities(7).
var wanted = []struct {
	check  string
	name   string
	bit    uint
	needed string
}{
	{"cap-net-admin", "CAP_NET_ADMIN", unix.CAP_NET_ADMIN, "for TUN devices, routes, the kill switch, and the backends kernel and route"},
	{"cap-bpf", "CAP_BPF", unix.CAP_BPF, "for the backend kernel"},
	{"cap-net-raw", "CAP_NET_RAW", unix.CAP_NET_RAW, "for captures of a device"},
	{"cap-sys-admin", "CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, "for the network namespaces of `heddle lab`"},
}

// held returns the capabilities of this process. CAP_SYS_ADMIN includes CAP_BPF.
func held() (map[string]bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, err
	}
	effective := uint64(data[0].Effective) | uint64(data[1].Effective)<<32
	has := map[string]bool{}
	for _, c := range wanted {
		has[c.name] = effective&(1<<c.bit) != 0
	}
	has["CAP_BPF"] = has["CAP_BPF"] || has["CAP_SYS_ADMIN"]
	return has, nil
}

// capabilities returns one result for each capability.
func capabilities(has map[string]bool, err error) (results []Result) {
	for _, c := range wanted {
		r := yes("this user has " + c.name + ", " + c.needed)
		switch {
		case err != nil:
			r = unknown("whether this user has "+c.name+": "+err.Error(), "")
		case !has[c.name]:
			r = no("this user lacks "+c.name+", "+c.needed, errhint.Rights(c.name)+"; `heddle split` and `heddle up --socks` need none")
		}
		r.Check = c.check
		results = append(results, r)
	}
	return results
}

// backendsHere says of each backend whether this user can run it now. tunnel and program are the checks of TUN devices and of BPF.
func backendsHere(has map[string]bool, tunnel, program Verdict) []Backend {
	var list []Backend
	for _, b := range split.Backends() {
		here := Backend{Backend: b, Here: Yes}
		admin := has["CAP_NET_ADMIN"]
		switch {
		case b.Name == "wireguard" && (!admin || tunnel == No):
			here.Here, here.Hint = Partly, "as `heddle up --socks` only"
		case b.Name == "kernel" && (!admin || program != Yes):
			here.Here, here.Hint = No, "it needs "+b.Needs+": see those lines above, and the line bpf"
		case b.Name == "route" && !admin:
			here.Here, here.Hint = No, "it needs "+b.Needs+": see that line above"
		}
		list = append(list, here)
	}
	return list
}

// tun makes a TUN device in a new namespace. Without the privilege it asks the driver for its features.
func tun() Result {
	const device = "/dev/net/tun"
	unprivileged := errhint.Rights("CAP_NET_ADMIN") + "; `heddle up --socks` needs none"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO):
		return no(device+": "+err.Error(), "modprobe tun; in a container, pass the device in; `heddle up --socks` needs none")
	case err != nil:
		return no(device+": "+err.Error(), unprivileged)
	}
	unix.Close(fd)
	made, err := inScratch(func() error {
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		request, err := unix.NewIfreq("heddle-doctor")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	})
	switch {
	case !made:
		return untried("a TUN device", "CAP_NET_ADMIN", unprivileged)
	case err != nil:
		return no("no TUN device can be made: "+err.Error(), unprivileged)
	}
	return yes("TUN devices can be made (`heddle up`)")
}

// untried is the result for what takes a capability, if this user may not make a network namespace to try it in.
func untried(what, capability, hint string) Result {
	if has, err := held(); err == nil && !has[capability] {
		return no(what+" takes "+capability+", which this user lacks", hint)
	}
	return unknown(what+" takes "+capability+", which this user has; it was not tried, so that nothing changes", "")
}

// nftablesCheck makes a table and a chain like the kill switch's, in a new namespace.
func nftablesCheck() Result {
	hint := errhint.Rights("CAP_NET_ADMIN") + ", on a kernel with nf_tables; the kill switch needs it, and so does dropping the kernel's answers to late packets (without it, a second process keeps sockets open for a while)"
	made, err := inScratch(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "heddle_doctor"})
		c.AddChain(&nftables.Chain{Name: "output", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
		return c.Flush()
	})
	switch {
	case !made:
		return untried("a table of nftables", "CAP_NET_ADMIN", hint)
	case err != nil:
		return no("no table can be made: "+err.Error(), hint)
	}
	return yes("the firewall takes tables (the kill switch, and dropping answers to late packets)")
}

func namespaces() Result {
	if made, _ := inScratch(func() error { return nil }); !made {
		return no("no network namespace can be made", "`heddle lab` needs root or CAP_SYS_ADMIN; in a container, give it that")
	}
	return yes("network namespaces can be made (`heddle lab`)")
}

// bpf loads a minimal program of two instructions.
func bpf() Result {
	hint := errhint.Rights("CAP_BPF and CAP_NET_ADMIN") + "; only --backend kernel needs it"
	err := features.HaveProgramType(ebpf.SchedCLS)
	switch {
	case err == nil:
		return yes("programs load into the kernel (the backend kernel)")
	case errors.Is(err, ebpf.ErrNotSupported):
		return no("the kernel takes no programs for packets", "a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF; only --backend kernel needs it")
	case errors.Is(err, unix.EPERM):
		return no("this user may not load programs into the kernel", hint)
	}
	return no(fmt.Sprintf("no program loads: %v", err), hint)
}
