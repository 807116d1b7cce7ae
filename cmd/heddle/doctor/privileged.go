package doctor

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// The capabilities that Heddle may need, with their numbers in capabilities(7).
var wanted = []struct {
	name   string
	bit    uint
	needed string
}{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, "a TUN device, routes and the kill switch"},
	{"CAP_NET_RAW", unix.CAP_NET_RAW, "captures of a device"},
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, "the lab's network namespaces"},
}

func capabilities() Result {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return unknown(err.Error(), "")
	}
	effective := uint64(data[0].Effective) | uint64(data[1].Effective)<<32
	var have, lack []string
	for _, c := range wanted {
		if effective&(1<<c.bit) != 0 {
			have = append(have, c.name)
		} else {
			lack = append(lack, c.name+" ("+c.needed+")")
		}
	}
	const hint = "run as root for these; `heddle split` and `heddle up --socks` need none"
	switch {
	case len(lack) == 0:
		return yes(list(have))
	case len(have) == 0:
		return no("without "+list(lack), hint)
	}
	return partly(list(have)+"; without "+list(lack), hint)
}

// tun makes a TUN device in a new namespace. Without the privilege it asks the driver for its features.
func tun() Result {
	const device = "/dev/net/tun"
	const unprivileged = "run as root or with CAP_NET_ADMIN for a device; `heddle up --socks` needs none"
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
		return unknown(device+" opens; whether a device can be made needs CAP_SYS_ADMIN to try", unprivileged)
	case err != nil:
		return no("no TUN device can be made: "+err.Error(), unprivileged)
	}
	return yes("TUN devices can be made, with offloads (IFF_VNET_HDR)")
}

// nftablesCheck makes a table and a chain like the kill switch's, in a new namespace.
func nftablesCheck() Result {
	const hint = "the kill switch needs it: a kernel with nf_tables, and root or CAP_NET_ADMIN"
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
		return unknown("trying it needs CAP_SYS_ADMIN", hint)
	case err != nil:
		return no("no table can be made: "+err.Error(), hint)
	}
	return yes("tables and chains can be made (the kill switch)")
}

func namespaces() Result {
	if made, _ := inScratch(func() error { return nil }); !made {
		return no("no network namespace can be made", "`heddle lab` needs root or CAP_SYS_ADMIN; in a container, give it that")
	}
	return yes("network namespaces can be made (`heddle lab`)")
}

// bpf loads a minimal program of two instructions.
func bpf() Result {
	const hint = "run as root or with CAP_BPF and CAP_NET_ADMIN; only --backend kernel needs it"
	err := features.HaveProgramType(ebpf.SchedCLS)
	switch {
	case err == nil:
		return yes("programs of type sched_cls load")
	case errors.Is(err, ebpf.ErrNotSupported):
		return no("the kernel has no programs of type sched_cls", "a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF; only --backend kernel needs it")
	case errors.Is(err, unix.EPERM):
		return no("this user may not load programs", hint)
	}
	return no(fmt.Sprintf("no program loads: %v", err), hint)
}
