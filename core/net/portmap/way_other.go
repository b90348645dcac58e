//go:build !linux

package portmap

import "errors"

// defaultWay is that to the router: tunnels, and so mapped ports, are Linux'.
func defaultWay() (way, error) { return way{}, errors.New("ports are mapped on Linux alone") }
