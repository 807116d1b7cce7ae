# Boots systemd in namespaces of its own, with the units of a directory and little else: $1 is the directory, $2 the binary. All that it writes is in
# memory: the root is an overlay, so that nothing here can change the machine's files.
set -e
mount --make-rprivate /
new=/mnt/root
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work $new
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work $new || exit 77 # units_test.go knows the number
mount -t tmpfs tmpfs $new/run
mount --rbind /sys $new/sys
mount --rbind /dev $new/dev
mount -t proc proc $new/proc
mkdir -p $new/run/lock $new/run/units $new/run/old
cp "$2" $new/usr/local/bin/heddle
for unit in "$1"/*.service; do # there is no journal
	sed "s,^\[Service\],&\nStandardOutput=append:/run/units.log\nStandardError=append:/run/units.log," "$unit" > "$new/run/units/${unit##*/}"
done
# Services of the machine, such as those that clean /tmp or set kernel parameters, are not among them.
for unit in sysinit.target basic.target network-online.target nss-lookup.target time-sync.target shutdown.target; do
	cp /lib/systemd/system/$unit $new/run/units/
done
cd $new
pivot_root . run/old
umount -l /run/old
printf '[Unit]\nDescription=nothing\n' > /run/units/nothing.target
rm -rf /etc/systemd/system
mkdir -p /etc/systemd/system /etc/heddle
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
ip address add 192.0.2.1/32 dev lo
sysctl -qw net.ipv4.ip_forward=1

# What the units' first lines ask for.
export HOME=/root
heddle=/usr/local/bin/heddle
useradd --system --user-group heddle-pseudonym
$heddle pseudonym init cloud.example --gateway 192.0.2.1 --dir /etc/heddle/cloud
sed -i 's,^# switch = .*,switch = "unix:/run/heddle-switch/socket",; s,^# gateway-mode = .*,gateway-mode = "handoff",' /etc/heddle/cloud/cloud.toml
chown -R heddle-pseudonym /etc/heddle/cloud
mkdir /run/units/heddle-pseudonym.service.d
cat > /run/units/heddle-pseudonym.service.d/override.conf <<-END
	[Service]
	ExecStart=
	ExecStart=/usr/local/bin/heddle pseudonym serve /etc/heddle/cloud/cloud.toml --only store,linker,dns,gateway
END
for kind in bpf nft; do
	cat > /etc/heddle/switch-$kind.toml <<-END
		zone = "cloud.example"
		gateways = ["192.0.2.1"]
		gateway-switch = "$kind"
		switch = "unix:/run/heddle-switch/socket"
		switch-group = "heddle-pseudonym"
	END
done
ln -s switch-bpf.toml /etc/heddle/switch.toml
cp /etc/heddle/cloud/root.pem /etc/heddle/root.pem
cat > /etc/heddle/tenant.toml <<-END
	zone = "cloud.example"
	store = ["192.0.2.1:4481"]
	root = "/etc/heddle/root.pem"
	identity = "/var/lib/heddle-tenant/tenant.pem"
	listen = "unix:/run/heddle-tenant/sidecar"
	to = "http://127.0.0.1:8080"
END
cat > /etc/heddle/agent.toml <<-END
	identity = "/var/lib/heddle-tenant/tenant.pem"
	to = "unix:/run/heddle-tenant/sidecar"
	gateway-key = "$($heddle pseudonym gateway-key /etc/heddle/cloud/cloud.toml)"
END
key=$(HEDDLE_HOME=/run/somebody $heddle node key)
echo "$key" > /etc/heddle/board-members
printf 'listen = "127.0.0.1:4433"\ngrantor = ["%s"]\n' "$key" > /etc/heddle/node.toml
printf '[[serve]]\nname = "ssh"\nto = "127.0.0.1:22"\nallow = ["%s"]\n' "$key" > /etc/heddle/stream-ssh.toml
printf 'listen = ["127.0.0.1:4434"]\nto = "127.0.0.1:22"\n' > /etc/heddle/bridge.toml

export container=lxc SYSTEMD_UNIT_PATH=/run/units
exec /lib/systemd/systemd --system --unit=nothing.target --log-target=console --show-status=no
