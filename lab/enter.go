package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"heddle/path"
)

// enterName is the argv[0] that makes [MaybeEnter] act. Arguments: the instance, the host, the program and its arguments.
const enterName = "heddle-lab-enter"

// enterReady says that this program calls MaybeEnter. Otherwise [Host.Command] would start the program itself again.
var enterReady bool

// MaybeEnter turns this process into a program inside a host, or into the emulator of a world, if [Host.Command] or
// [Up] started it for that; then it does not return. Call it first in main and TestMain.
func MaybeEnter() {
	enterReady = true
	var err error
	switch {
	case os.Args[0] == enterName && len(os.Args) >= 4:
		err = Exec(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]...)
	case os.Args[0] == engineName:
		err = hurry()
	case os.Args[0] == hurriedName:
		if err = runEngine(os.Stdin, os.Stdout); err == nil {
			os.Exit(0)
		}
	default:
		return
	}
	fmt.Fprintln(os.Stderr, "heddle lab:", err)
	os.Exit(127)
}

// Exec replaces this process by a program inside a host. It returns only on failure.
func Exec(instance, host, program string, args ...string) error {
	// Namespaces are per thread, and execve uses those of the calling thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := netns.GetFromName(namespaceName(instance, host))
	if err != nil {
		return &path.Error{What: "host " + host, Why: "there is no such host in world " + instance, Hint: "heddle lab list", Err: err}
	}
	defer handle.Close()
	home := hostDir(instance, host)
	if err := netns.Set(handle); err != nil {
		return fmt.Errorf("enter host %s: %w", host, err)
	}
	if err := privateMounts(home); err != nil {
		return fmt.Errorf("enter host %s: %w", host, err)
	}
	file, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	if err := os.Setenv("HEDDLE_RUN_DIR", filepath.Join(home, "run")); err != nil {
		return err
	}
	return unix.Exec(file, append([]string{program}, args...), os.Environ())
}

// privateMounts gives the calling thread a mount namespace where the host's own files cover the machine's. Slave
// propagation receives the machine's unmounts, so that no process keeps a namespace alive, and sends none back.
func privateMounts(home string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount propagation: %w", err)
	}
	if err := os.MkdirAll("/run/wireguard", 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{"hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf", "wireguard": "/run/wireguard"} {
		if err := unix.Mount(filepath.Join(home, from), to, "", unix.MS_BIND, ""); err != nil {
			return &path.Error{What: "lay the host's own " + to, Why: "bind mount refused", Hint: "does " + to + " exist?", Err: err}
		}
	}
	// /sys/class/net shows the network namespace of the process that mounted it.
	if err := unix.Mount("heddle", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	if err := unix.Mount(filepath.Join(home, "bpf"), "/sys/fs/bpf", "", unix.MS_BIND, ""); err != nil && err != unix.ENOENT {
		return fmt.Errorf("mount the host's BPF file system: %w", err)
	}
	return nil
}

// mountBPF gives a host a BPF file system, if the kernel has it, in which its programs share maps of BPF. removeDir unmounts it.
func mountBPF(home string) error {
	at := filepath.Join(home, "bpf")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("heddle", at, "bpf", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "mode=0700"); err != nil && err != unix.ENODEV {
		return &os.PathError{Op: "mount bpf", Path: at, Err: err}
	}
	return nil
}
