package peer

import (
	"context"
	"os"
	"path/filepath"

	"heddle/internal/openvswitch"
	"heddle/lab"
)

// OpenVSwitchSupported returns nil, or an error that wraps [ErrMissing].
func OpenVSwitchSupported() error {
	if openvswitch.Supported() != nil {
		return missing("ovs-vswitchd", "apt-get install openvswitch-switch")
	}
	return nil
}

// OpenVSwitch joins all networks of a host by a bridge of the unmodified Open vSwitch, which has its datapath in its process.
func OpenVSwitch(ctx context.Context, host *lab.Host, bridge string) error {
	if err := OpenVSwitchSupported(); err != nil {
		return err
	}
	dir := filepath.Dir(BridgeSocket(host, bridge))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s, err := openvswitch.Start(ctx, dir, host.Do)
	if err != nil {
		return err
	}
	return host.Bridge(bridge, func(ports ...string) error { return s.Bridge(bridge, ports...) })
}

// BridgeSocket is the file of the socket at which a bridge of [OpenVSwitch] is managed.
func BridgeSocket(host *lab.Host, bridge string) string {
	return filepath.Join(host.Dir(), "openvswitch", bridge+".mgmt")
}
