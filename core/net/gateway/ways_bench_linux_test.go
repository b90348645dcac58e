package gateway

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// BenchmarkWays compares the ways of a tunnel by turns: by UDP on a LAN, by UDP between two routers, and over a connection that a third one passes on, as
// kithd does: TLS between the two, inside TLS with the one in between. Run it as root.
func BenchmarkWays(b *testing.B) {
	type tunnel struct {
		name  string
		alice *laptop
		way
	}
	var all []tunnel
	for _, want := range []Way{WayDirect, WayPunched, WayCarried} {
		l := newLAN(b)
		var alice, bob *laptop
		if want == WayDirect {
			alice, bob = l.laptop("alice", 11), l.laptop("bob", 12)
			bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
			alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
		} else {
			ports := map[Way]string{WayPunched: "", WayCarried: "fully-random"}[want]
			carol := l.laptop("carol", 3)
			alice, bob = l.router(21, ports).laptop("alice", 11), l.router(22, ports).laptop("bob", 12)
			alice.tls, bob.tls, carol.tls = "client", "server", "relay"
			behind(b, alice, bob, carol)
		}
		alice.hasStats("bob", func(s Stats) bool { return s.Way == want })
		guest := bob.guest("10.65.0.5")
		guest.serveTCPAt("0.0.0.0:85", func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			fmt.Fprint(c, n)
		})
		all = append(all, tunnel{string(want), alice, way{string(want), alice.end, "10.42.0.5", "10.65.0.5"}})
	}
	for _, one := range []struct {
		name, unit string
		figure     func(tunnel) float64
	}{
		{"throughput", "Mbit/s", func(t tunnel) float64 { return t.streams(1) }},
		{"round-trip", "µs", func(t tunnel) float64 {
			var list []float64
			for range 100 {
				list = append(list, float64(t.alice.do(order{Do: "rtt", ID: "bob"}).RTT.Nanoseconds())/1000)
			}
			return median(list)
		}},
	} {
		b.Run(one.name, func(b *testing.B) {
			got := map[string][]float64{}
			for round := 0; b.Loop(); round++ {
				for i := range all {
					t := all[(round+i)%len(all)]
					got[t.name] = append(got[t.name], one.figure(t))
				}
			}
			for _, t := range all {
				b.ReportMetric(median(got[t.name]), t.name+"-"+one.unit)
			}
		})
	}
}

// secured is a connection with TLS of one end on it. Who it is with is not what is measured.
func secured(conn net.Conn, server bool) net.Conn {
	if !server {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(nil, about, about, public, private)
	if err != nil {
		panic(err)
	}
	return tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}}})
}
