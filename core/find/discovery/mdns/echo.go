package mdns

import (
	"context"
	"net"
	"time"
)

// Echo is whether a machine hears on an interface of the LAN what it says there by multicast itself. It does not know what switches and
// access points do.
type Echo struct {
	Interface string
	MTU       int
	Err       error // the kernel did not let it out
	Heard     bool
}

const (
	echoTries = 4
	echoPause = 350 * time.Millisecond
)

// Echoes asks the mDNS group on each LAN of this machine, as discovery does, and listens whether that comes back: the kernel hands what
// is sent to a group to this machine's own members too, by way of the same packet filters. Patterns are as in Config.Interfaces;
// without a LAN there are no echoes. It takes two seconds at most.
func Echoes(ctx context.Context, patterns []string) ([]Echo, error) {
	interfaces, err := listInterfaces()
	if err != nil {
		return nil, err
	}
	question, err := composeBrowse(nil)
	if err != nil {
		return nil, err
	}
	var echoes []Echo
	var lan []lanInterface
	sockets := map[bool]*socket{}
	packets := make(chan incoming, 512)
	for _, i := range interfaces {
		if !i.isLAN(patterns) || !i.speaks(false) && !i.speaks(true) {
			continue
		}
		e := Echo{Interface: i.name}
		if nic, err := net.InterfaceByIndex(i.index); err == nil {
			e.MTU = nic.MTU
		}
		v6 := !i.speaks(false)
		if sockets[v6] == nil {
			s, err := openSocket(v6)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			sockets[v6] = s
			go func() { _ = s.read(packets) }() // its end is nothing heard
		}
		sockets[v6].JoinGroup(&net.Interface{Index: i.index, Name: i.name}, sockets[v6].group)
		echoes, lan = append(echoes, e), append(lan, i)
	}
	waiting := len(lan)
	for range echoTries {
		for n, i := range lan {
			if !echoes[n].Heard {
				echoes[n].Err = sockets[!i.speaks(false)].send(i.index, question[0])
			}
		}
		for pause := time.After(echoPause); waiting > 0 && pause != nil; {
			select {
			case in := <-packets:
				for n, i := range lan {
					if i.index == in.link.index && i.has(in.sender) && !echoes[n].Heard {
						echoes[n].Heard = true
						waiting--
					}
				}
			case <-pause:
				pause = nil
			case <-ctx.Done():
				return echoes, ctx.Err()
			}
		}
	}
	return echoes, nil
}
