// Package tencentvpc without the backend: the SDK that it needs cannot be had.
package tencentvpc
