package main

import (
	"context"
	"errors"
	"time"

	"kith.dev/test/lab"
)

// up makes labs of two laptops from nothing; the last one stays for the other groups.
func up(ctx context.Context, r *rig) error {
	for range max(1, r.rounds/5) - 1 {
		began := time.Now()
		l, err := lab.Up(ctx, lab.Options{Name: r.options.lab + "up", Laptops: 2})
		if err == nil {
			r.report.took("two laptops: up, until both nodes are Ready", time.Since(began))
		}
		if l != nil {
			began = time.Now()
			err = errors.Join(err, l.Down(context.WithoutCancel(ctx)))
			r.report.took("two laptops: down", time.Since(began))
		}
		if err != nil {
			return err
		}
	}
	return r.laptops(ctx)
}
