package backend

import (
	"context"
	"errors"
	"fmt"
	"io"

	"kith.dev/core/api"
	"kith.dev/core/local/images"
)

// store gives the images of this laptop's container runtime, which it wakes and keeps awake until done.
func (b *Backend) store(ctx context.Context) (s *images.Store, done func(), err error) {
	if b.Engine == nil || b.Engine.Facts().Runtime == "" {
		return nil, nil, &api.Error{Code: api.CodeUnsupported, Message: "Kith does not know the images of this cluster", Reason: "its container runtime is not on this machine, or not one that Kith runs",
			Do: "load images there as its owner does"}
	}
	done = b.Uses.Begin()
	if err := b.awake(ctx, "a question for images"); err != nil {
		done()
		return nil, nil, b.runtimeError("the container runtime was asleep, and did not wake up", err)
	}
	return b.Stored, done, nil
}

// Images lists what the container runtime has.
func (b *Backend) Images(ctx context.Context) ([]api.Image, error) {
	s, done, err := b.store(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := s.List(ctx)
	return list, b.runtimeError("the images cannot be listed", err)
}

// LoadImages takes an archive in.
func (b *Backend) LoadImages(ctx context.Context, archive io.Reader, name string) ([]api.Image, error) {
	s, done, err := b.store(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	loaded, err := s.Load(ctx, archive, name)
	if err != nil {
		return nil, &api.Error{Code: api.CodeInvalid, Message: "the archive was not loaded", Reason: err.Error(),
			Do: "it must be a tar of images, as docker save, podman save or skopeo copy … oci-archive:… write it"}
	}
	b.News.Notify()
	return loaded, nil
}

// RemoveImage takes a name away.
func (b *Backend) RemoveImage(ctx context.Context, name string) error {
	s, done, err := b.store(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = s.Remove(ctx, name)
	if errors.Is(err, images.ErrNotFound) {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no image %q here", name), Do: "`kith image ls` shows what there is"}
	}
	return b.runtimeError("the image was not removed", err)
}

func (b *Backend) runtimeError(what string, err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Code: api.CodeUnavailable, Message: what, Reason: err.Error(), Do: "`kith status` shows how the engine is"}
}
