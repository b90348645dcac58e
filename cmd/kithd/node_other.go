//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// nodeCommand is for nodes of a cluster, which are Linux.
func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "node", Short: "Lead pods of this node to the gateway's", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errors.New("kithd node needs Linux") },
	}
}
