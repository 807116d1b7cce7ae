package pacing

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func isBBR(fd uintptr) bool {
	name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return err == nil && strings.HasPrefix(name, "bbr")
}

func ask(fd uintptr) (sample, error) {
	i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return sample{}, err
	}
	return sample{rtt: time.Duration(i.Rtt) * time.Microsecond, delivered: i.Delivery_rate, sent: i.Data_segs_out, lost: i.Total_retrans,
		inFlight: i.Unacked, segment: i.Snd_mss, least: time.Duration(i.Min_rtt) * time.Microsecond}, nil
}

// limit bounds the rate in bytes per second.
func limit(fd uintptr, rate int) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, rate)
}

func flowOf(fd uintptr) (flow, error) {
	i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return flow{}, err
	}
	f := flow{arrived: i.Delivered, sent: i.Data_segs_out, lost: i.Total_retrans, segment: i.Snd_mss, window: i.Snd_cwnd, unsent: int(i.Notsent_bytes)}
	f.out = int(i.Unacked-min(i.Sacked, i.Unacked))*int(i.Snd_mss) + f.unsent
	if i.Rtt > 0 {
		f.rtt, f.least = time.Duration(i.Rtt)*time.Microsecond, time.Duration(i.Min_rtt)*time.Microsecond
	}
	return f, nil
}
