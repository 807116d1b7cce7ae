package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
)

// SSH is an OpenSSH server, and what its client needs.
type SSH struct {
	*Process
	// Config is the client's file for ssh -F. It logs root in by key, and trusts the server's key under any name.
	Config string
}

// sshd's privilege separation needs this directory (sshd(8), FILES).
const sshdDir = "/run/sshd"

// sshd needs its absolute path, since it starts itself again for each connection.
const sshd = "/usr/sbin/sshd"

// The timeout ends mosh-server once its client has been gone for so long (mosh-server(1)), so that none is left behind.
const sshdConfig = `Port 22
AddressFamily any
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/client.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
PidFile none
Subsystem sftp internal-sftp
SetEnv MOSH_SERVER_NETWORK_TMOUT=60
`

const sshConfig = `Host *
User root
IdentityFile %[1]s/client
IdentitiesOnly yes
UserKnownHostsFile %[1]s/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
BatchMode yes
`

// SSHServer starts the unmodified sshd on a host, on port 22 of all its addresses, with new keys in work, an existing
// directory. The user is root, since nobody else can enter a host.
func SSHServer(ctx context.Context, host *lab.Host, work string) (*SSH, error) {
	for _, program := range []string{sshd, "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, missing(program, "apt-get install openssh-server")
		}
	}
	if strings.ContainsAny(work, " \t\n\"") {
		return nil, fmt.Errorf("sshd: %q holds a character that its configuration cannot", work)
	}
	s := &SSH{Config: filepath.Join(work, "ssh_config")}
	if err := s.write(ctx, work); err != nil {
		return nil, err
	}
	if err := os.Mkdir(sshdDir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	var err error
	if s.Process, err = Start(ctx, host, "nice", hurried(sshd, "-D", "-e", "-f", filepath.Join(work, "sshd_config"))...); err != nil {
		return nil, err
	}
	_, err = s.OrStop(s.AwaitLog(ctx, "Server listening on"))
	return s, err
}

// hurried returns arguments of nice(1) that give a program priority over other work: a terminal's rate depends on
// timers of a few milliseconds.
func hurried(program string, args ...string) []string {
	return append([]string{"-n", "-15", program}, args...)
}

// write makes the keys and files of both sides.
func (s *SSH) write(ctx context.Context, work string) error {
	for _, name := range []string{"host", "client"} {
		cmd := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(work, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(work, "host.pub"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"sshd_config": fmt.Sprintf(sshdConfig, work),
		"ssh_config":  fmt.Sprintf(sshConfig, work),
		"known_hosts": "* " + string(public),
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
