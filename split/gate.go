package split

import "golang.zx2c4.com/wireguard/tun"

// Bound wraps the device for wireguard-go, to bound the packets in flight inside wireguard-go.
func (b *Bind) Bound(d tun.Device) tun.Device { return &boundDevice{Device: d, bind: b} }

type boundDevice struct {
	tun.Device
	bind *Bind
}

func (d *boundDevice) Read(packets [][]byte, sizes []int, offset int) (int, error) {
	d.bind.up.Wait()
	n, err := d.Device.Read(packets, sizes, offset)
	d.bind.up.Enter(n)
	return n, err
}

func (d *boundDevice) Write(packets [][]byte, offset int) (int, error) {
	n, err := d.Device.Write(packets, offset)
	d.bind.down.Leave(len(packets))
	return n, err
}
