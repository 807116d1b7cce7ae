//go:build !linux

package connectudp

func (p *Proxy) warnBuffers() {}
